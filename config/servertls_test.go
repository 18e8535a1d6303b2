package config_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-rls/sluice/config"
)

func TestServerTLS(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.pem")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	const on, cert, key, ca = "GRPC_SERVER_USE_TLS=true", "GRPC_SERVER_TLS_CERT=", "GRPC_SERVER_TLS_KEY=", "GRPC_CLIENT_TLS_CACERT="
	f := func(want config.ServerTLS, words ...string) {
		t.Helper()
		got := parse(t, nil, words...).GRPCTLS
		if diff := cmp.Diff(want, got); diff != "" || got.On() != (got.Cert != "") {
			t.Errorf("Parse(%q), TLS %v (-want +got):\n%s", words, got.On(), diff)
		}
	}
	f(config.ServerTLS{})
	f(config.ServerTLS{Cert: file, Key: file}, on, cert+file, key+file)
	f(config.ServerTLS{Cert: file, Key: file, ClientCA: file, ClientSAN: "envoy.local"}, on, cert+file, key+file, ca+file, "GRPC_CLIENT_TLS_SAN=envoy.local")
	f(config.ServerTLS{}, "GRPC_SERVER_USE_TLS=false", cert+"/does/not/exist", ca+"/does/not/exist")

	fails := func(want string, words ...string) {
		t.Helper()
		_, _, err := config.Parse(nil, env(words...))
		if err == nil || err.Error() != want {
			t.Errorf("Parse(%q):\n got %v\nwant %s", words, err, want)
		}
	}
	fails("GRPC_SERVER_USE_TLS: is set, and GRPC_SERVER_TLS_KEY is not", on, cert+file)
	fails("GRPC_SERVER_USE_TLS: is set, and GRPC_SERVER_TLS_CERT is not", on, key+file)
	fails("GRPC_SERVER_USE_TLS: is set, and GRPC_SERVER_TLS_CERT is not\nGRPC_SERVER_USE_TLS: is set, and GRPC_SERVER_TLS_KEY is not", on)
	fails(`GRPC_SERVER_TLS_CERT: opening "/does/not/exist": no such file or directory`, on, cert+"/does/not/exist", key+file)
	fails(`GRPC_SERVER_TLS_KEY: opening "/does/not/exist": no such file or directory`, on, cert+file, key+"/does/not/exist")
	fails(`GRPC_CLIENT_TLS_CACERT: opening "/does/not/exist": no such file or directory`, on, cert+file, key+file, ca+"/does/not/exist")
	fails("GRPC_CLIENT_TLS_SAN: is set, and GRPC_CLIENT_TLS_CACERT is not, without which no certificate is asked for", on, cert+file, key+file, "GRPC_CLIENT_TLS_SAN=envoy.local")
	fails("GRPC_SERVER_TLS_CERT: is set, and GRPC_SERVER_USE_TLS is not", cert+file)
	fails("GRPC_CLIENT_TLS_CACERT: is set, and GRPC_SERVER_USE_TLS is not", ca+file)
}
