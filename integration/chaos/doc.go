// Package chaos does to Redis, and to the way there, what can happen to them, while some
// instances of the built binary answer a steady load, and says what their callers saw of
// it. TestFaults has the matrix, whose table is in docs/reliability.md.
//
// With each call the load sends the same to a control, an instance that needs no Redis: what
// is late there as well was the machine's doing, so that the matrix can be strict and yet
// pass on a machine that does other things meanwhile.
//
// The ways in which Redis is run, and where they are tested:
//
//   - one server: TestFaults; over a unix socket TestUnixSocket, over IPv6 TestIPv6
//   - Sentinel, its master killed: TestFaults, and with passwords of both TestSentinelWithPasswords
//   - a cluster of three masters with replicas, one master killed: TestFaults
//   - a cluster one of whose nodes stalls, is cut off or resets connections: TestFaults
//   - a cluster whose slots move under load: TestReshardUnderLoad
//   - TLS with an authority of its own and client certificates: TestTLS
//   - an ACL user, and passwords with all that separates the parts of an address: TestPasswordsAndUsers
//   - a second Redis for limits by the second: TestPerSecondRedis
//   - a master that moves behind one address, so that the old one says READONLY: TestTheMasterMovesBehindOneAddress
//   - SCRIPT FLUSH, a restart with nothing, maxmemory: TestFaults
//   - a proxy that knows no scripts: TestAServerWithoutScripts
//   - addresses where nobody answers: TestSilence
//
// The tests have the build tag integration. Short, as in CI, a fault lasts a second and a
// half; with -long six seconds, under more load:
//
//	go test -tags integration ./integration/chaos -run Faults -v -args -long -update
//
// With -update the table is written into the page. With SLUICE_REDIS_SERVER set to the path
// of another redis-server, all but TestTLS works with one of version 6.2 as well.
package chaos
