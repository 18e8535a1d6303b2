package descriptors

import "strings"

// suggestion says what an unknown name may have been meant to be: the nearest of the
// names that fit here, else the nearest of all, else the list of those that fit.
func suggestion(name string, here, all []string) string {
	for _, names := range [][]string{here, all} {
		if best, ok := nearest(name, names); ok {
			return "did you mean " + best + "?"
		}
	}
	return "known here: " + strings.Join(here, ", ")
}

// meant asks whether the nearest of some words was meant, or says nothing.
func meant(word string, words []string) string {
	if best, ok := nearest(word, words); ok {
		return "; did you mean " + best + "?"
	}
	return ""
}

// minAbbreviation is how many letters stand for the name that they begin.
const minAbbreviation = 3

// nearest finds the name that is fewest edits away, if at most a third of it is wrong;
// an abbreviation is one edit.
func nearest(name string, names []string) (best string, ok bool) {
	plain := plainName(name)
	least := len(plain)/3 + 2
	for _, candidate := range names {
		full := plainName(candidate)
		d := editDistance(plain, full)
		if len(plain) >= minAbbreviation && strings.HasPrefix(full, plain) {
			d = 1
		}
		if d < least {
			best, least = candidate, d
		}
	}
	return best, best != ""
}

// plainName leaves out what people write one way or another: case, - and _.
func plainName(name string) string {
	return strings.NewReplacer("-", "", "_", "", " ", "").Replace(strings.ToLower(name))
}

// maxEdited bounds the length of names compared: no known name is near a longer one.
const maxEdited = 64

// editDistance counts the letters to insert, delete, replace or swap with their
// neighbour to make b of a.
func editDistance(a, b string) int {
	if len(a) > maxEdited {
		return len(a)
	}
	before, last := make([]int, len(b)+1), make([]int, len(b)+1)
	row := make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(row[j]+1, last[j+1]+1, last[j]+cost)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
