package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// tryOptions are the flags of try.
type tryOptions struct {
	addr    string
	domain  string
	n       int
	hits    optionalUint
	timeout time.Duration
	tls     dialTLS
	lists   []string // -descriptors, one descriptor each
	entries []string // the arguments, one descriptor in all
}

// try sends calls to a running service. It exits with 0 whatever was decided, and with 1
// if a call failed.
func try(ctx context.Context, args []string, e env) int {
	o, err := parseTry(args, e.stderr)
	if errors.Is(err, flag.ErrHelp) {
		return exitOK
	}
	var req *rlsv3.RateLimitRequest
	if err == nil {
		req, err = o.request()
	}
	var creds credentials.TransportCredentials
	if err == nil {
		creds, err = o.tls.credentials()
	}
	if err != nil {
		_, _ = fmt.Fprintf(e.stderr, "sluice try: %v\n", err)
		return exitUsage
	}
	if err := o.send(ctx, creds, req, e.stdout); err != nil {
		_, _ = fmt.Fprintf(e.stderr, "sluice try: asking %s: %v\n", o.addr, err)
		return exitError
	}
	return exitOK
}

func parseTry(args []string, stderr io.Writer) (*tryOptions, error) {
	o := &tryOptions{}
	f := flag.NewFlagSet("try", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	for _, name := range []string{"addr", "dial_string"} {
		f.StringVar(&o.addr, name, "localhost:8081", "`host:port` of the service, or unix:// and a path")
	}
	f.StringVar(&o.domain, "domain", "", "domain of the rules")
	f.IntVar(&o.n, "n", 1, "number of calls; above 1 only the sum is printed")
	f.Var(&o.hits, "hits", "the descriptors' own hits_addend; 0 looks without taking")
	f.DurationVar(&o.timeout, "timeout", time.Second, "deadline of each call")
	o.tls.register(f)
	f.Func("descriptors", "a further descriptor as `key=value,key=value`; may be repeated", func(s string) error {
		o.lists = append(o.lists, s)
		return nil
	})
	f.Usage = func() {
		_, _ = fmt.Fprintln(stderr, "usage: sluice try -domain DOMAIN [flags] key=value…")
		f.SetOutput(stderr)
		f.PrintDefaults()
	}
	for { // flags may stand after the entries too
		if err := f.Parse(args); err != nil {
			return nil, err
		}
		if args = f.Args(); len(args) == 0 {
			return o, nil
		}
		o.entries, args = append(o.entries, args[0]), args[1:]
	}
}

// request is the call that the flags describe.
func (o *tryOptions) request() (*rlsv3.RateLimitRequest, error) {
	switch {
	case o.domain == "":
		return nil, errors.New("-domain is missing: name the domain of the rules, as in -domain edge")
	case len(o.entries) == 0 && len(o.lists) == 0:
		return nil, errors.New("no entries: add the descriptor's, as in api_key=shop-a")
	case o.n < 1:
		return nil, fmt.Errorf("-n: %d is below 1", o.n)
	}
	req := &rlsv3.RateLimitRequest{Domain: o.domain}
	all := make([][]string, 0, 1+len(o.lists))
	if len(o.entries) > 0 {
		all = append(all, o.entries)
	}
	for _, l := range o.lists {
		all = append(all, strings.Split(l, ","))
	}
	for _, entries := range all {
		d := &commonv3.RateLimitDescriptor{HitsAddend: o.hits.value}
		for _, entry := range entries {
			key, value, _ := strings.Cut(entry, "=")
			if key == "" {
				return nil, fmt.Errorf("entry %q has no key: write key=value", entry)
			}
			d.Entries = append(d.Entries, &commonv3.RateLimitDescriptor_Entry{Key: key, Value: value})
		}
		req.Descriptors = append(req.Descriptors, d)
	}
	return req, nil
}

func (o *tryOptions) send(ctx context.Context, creds credentials.TransportCredentials, req *rlsv3.RateLimitRequest, w io.Writer) error {
	conn, err := grpc.NewClient(target(o.addr), grpc.WithTransportCredentials(creds))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	client := rlsv3.NewRateLimitServiceClient(conn)
	call := func() (*rlsv3.RateLimitResponse, error) {
		ctx, cancel := context.WithTimeout(ctx, o.timeout)
		defer cancel()
		return client.ShouldRateLimit(ctx, req)
	}
	if o.n == 1 {
		answer, err := call()
		if err == nil {
			printAnswer(w, answer)
		}
		return err
	}
	start, passed := time.Now(), 0
	for i := range o.n {
		answer, err := call()
		if err != nil {
			return fmt.Errorf("call %d of %d: %w", i+1, o.n, err)
		}
		if answer.GetOverallCode() == rlsv3.RateLimitResponse_OK {
			passed++
		}
	}
	_, _ = fmt.Fprintf(w, "%d of %d passed, %d denied, in %v\n", passed, o.n, o.n-passed, time.Since(start).Round(time.Millisecond))
	return nil
}

func printAnswer(w io.Writer, answer *rlsv3.RateLimitResponse) {
	_, _ = fmt.Fprintln(w, answer.GetOverallCode())
	for i, st := range answer.GetStatuses() {
		_, _ = fmt.Fprintf(w, "  descriptor %d: %v", i+1, st.GetCode())
		if l := st.GetCurrentLimit(); l != nil {
			_, _ = fmt.Fprintf(w, ", limit %s, remaining %d, reset %v",
				limitText(l), st.GetLimitRemaining(), st.GetDurationUntilReset().AsDuration())
		} else {
			_, _ = fmt.Fprint(w, ", no limit")
		}
		_, _ = fmt.Fprintln(w)
	}
	for _, h := range answer.GetResponseHeadersToAdd() {
		_, _ = fmt.Fprintf(w, "  %s: %s\n", h.GetKey(), h.GetValue())
	}
	if body := answer.GetRawBody(); len(body) > 0 {
		_, _ = fmt.Fprintf(w, "  body: %s\n", body)
	}
}

// limitText is a limit for people: "100 per minute", "60 per 30 seconds".
func limitText(l *rlsv3.RateLimitResponse_RateLimit) string {
	unit := strings.ToLower(l.GetUnit().String())
	text := fmt.Sprintf("%d per %s", l.GetRequestsPerUnit(), unit)
	if m := l.GetUnitMultiplier().GetValue(); m > 1 {
		text = fmt.Sprintf("%d per %d %ss", l.GetRequestsPerUnit(), m, unit)
	}
	if l.GetName() != "" {
		text += " (" + l.GetName() + ")"
	}
	return text
}

// optionalUint is a flag that tells absent from 0.
type optionalUint struct{ value *wrapperspb.UInt64Value }

// String is part of flag.Value.
func (u *optionalUint) String() string {
	if u.value == nil {
		return ""
	}
	return strconv.FormatUint(u.value.GetValue(), 10)
}

// Set is part of flag.Value.
func (u *optionalUint) Set(s string) error {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return fmt.Errorf("%q is not a whole number of 0 or more", s)
	}
	u.value = wrapperspb.UInt64(n)
	return nil
}

// target is an address in gRPC's form: host:port is dialled as it is, a scheme such as
// unix:// is kept.
func target(addr string) string {
	if strings.Contains(addr, "://") {
		return addr
	}
	return "passthrough:///" + addr
}
