package rls

import (
	"context"
	"log/slog"
	"net/http"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// DecideJSON answers a call in protobuf's JSON form of RateLimitRequest: with 200 or
// 429 and the whole answer in the same form, or with 400 and what is wrong with the
// request. 500 is a fault of ours, or a store that gave no decision.
func (s *Service) DecideJSON(ctx context.Context, body []byte) (code int, reply []byte) {
	answer, err := s.decideJSON(ctx, body)
	if status.Code(err) == codes.Unavailable {
		return http.StatusInternalServerError, []byte(status.Convert(err).Message() + "\n")
	}
	if err != nil {
		return http.StatusBadRequest, []byte(status.Convert(err).Message() + "\n")
	}
	reply, err = protojson.Marshal(answer)
	if err != nil {
		s.log.Error("encoding an answer as JSON", slog.Any("error", err))
		return http.StatusInternalServerError, []byte("internal error\n")
	}
	if answer.GetOverallCode() == rlsv3.RateLimitResponse_OVER_LIMIT {
		return http.StatusTooManyRequests, reply
	}
	return http.StatusOK, reply
}

// decideJSON takes the same way as a call over gRPC, from the bytes of the message to those
// of the answer.
func (s *Service) decideJSON(ctx context.Context, body []byte) (*rlsv3.RateLimitResponse, error) {
	var m rlsv3.RateLimitRequest
	if err := protojson.Unmarshal(body, &m); err != nil {
		return nil, err
	}
	data, err := proto.Marshal(&m)
	if err != nil {
		return nil, err
	}
	return s.Decide(ctx, data)
}

// Decide is Answer for those who want protobuf's own type.
func (s *Service) Decide(ctx context.Context, data []byte) (*rlsv3.RateLimitResponse, error) {
	reply, err := s.Answer(ctx, data, nil)
	if err != nil {
		return nil, err
	}
	var answer rlsv3.RateLimitResponse
	if err := proto.Unmarshal(reply, &answer); err != nil {
		return nil, err
	}
	return &answer, nil
}
