// Package chaos does to Redis, and to the way there, what can happen to them, while some
// instances of the built binary answer a steady load, and says what their callers saw of
// it. Faults has the matrix, whose table is in docs/reliability.md; Topologies has the ways
// in which Redis is run, each with its own mishaps.
//
// The tests have the build tag integration. Short, as in CI, a fault lasts a second and a
// half; with -long ten seconds, under more load:
//
//	go test -tags integration ./integration/chaos -run Faults -v -args -long -update
//
// With -update the table is written into the page.
package chaos
