// Package integration tests what a user has: the built binary, a real Redis and a real
// Envoy, with the files of examples/envoy as they stand. It sees no package of ours but
// the one that starts processes.
//
// The tests have the build tag integration. They find redis-server and envoy in
// .cache/bin, where scripts/tools.sh puts them.
package integration
