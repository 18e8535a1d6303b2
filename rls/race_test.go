//go:build race

package rls_test

// raceEnabled: the race detector's pools drop what they are given now and then.
const raceEnabled = true
