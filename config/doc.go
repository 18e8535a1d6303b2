// Package config holds what the process is told from outside: its settings, and the
// bytes of its rules.
//
// [Parse] turns flags and environment variables into one [Settings] value by one table,
// from which [Usage] and docs/settings.md are made too. It reads neither the
// environment nor the command line itself: cmd hands both over, and hands each room the
// part that it needs. The names are those of envoyproxy/ratelimit, whose users change
// the image and nothing else; the names that do nothing here are accepted and listed in
// a warning.
//
// [Folder] reads the rules folder (or the one rules file) and says when its content has
// changed, whichever way that came about: an edit in place, a rename over a file, a swap
// of a link anywhere on the way to it. It knows files and bytes; what a rule is, is for
// descriptors to say.
//
// The package imports none of the other rooms.
package config
