// Package descriptors holds the rule language: YAML files are parsed into immutable
// Rules, and a request's descriptor is matched against them.
//
// The way of a file is parse.go (YAML nodes to a draft, every mistake with its place),
// merge.go (the files of one domain to one tree), compile.go (the tree to maps and
// patterns) and match.go (a request's entries to the Rule). The keys of the language
// stand in one table, language.go: a new key is a line there and a field of Rule. A
// Loader ties these together and remembers the last good state of every file and
// domain, so that a bad edit changes nothing.
//
// A matched Rule says how much is allowed; [Rule.AppendKey] says which bucket pays. The
// key is made of the domain, the rule's own text and the request's values, each behind
// its length, so that no bytes of a client can reach another bucket.
//
// The package is given bytes: it reads no file, no environment and no clock, and it
// logs nothing. Rules and all they hold are safe for concurrent use and never change; a
// Loader belongs to one goroutine at a time.
package descriptors
