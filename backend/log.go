package backend

import (
	"slices"
	"sort"
)

// slidingLog keeps the time of each token taken, for one period: in no period do more than
// the limit pass. Tokens taken in the same microsecond are one entry, and no more entries
// are made than the limit has tokens. An entry takes 24 bytes in memory; in Redis about 30
// while there are fewer than 128, and then about 130.
//
// What counts is what was taken, so a limit that is changed holds for the last period as
// well. A debt is gone one period after it was made.
type slidingLog struct {
	// at is the time of the last open, or of the newest entry if that is later.
	at float64
	// entries are in the order of their times; the first gone of them have expired.
	entries []entry
	gone    int
}

// entry is the tokens taken at one time.
type entry struct {
	at float64 // microseconds
	// before and after are the numbers of tokens taken, in the whole life of the log,
	// before those of this entry and with them.
	before, after float64
}

func (s *slidingLog) open(l *Limit, now float64) (back bool) {
	s.at = now
	if n := len(s.entries); n > 0 {
		newest := s.entries[n-1].at
		if s.at = later(newest, now); s.at < newest {
			s.collapse()
			back = true
		}
	}
	live := s.live()
	s.gone += sort.Search(len(live), func(i int) bool { return live[i].at+period(l) > s.at })
	if s.gone > len(s.entries)/2 {
		s.entries, s.gone = slices.Delete(s.entries, 0, s.gone), 0
	}
	return back
}

// collapse has the entries that a clock left in the future, before it was set back, taken
// now.
func (s *slidingLog) collapse() {
	live := s.live()
	first := sort.Search(len(live), func(i int) bool { return live[i].at > s.at })
	live[first].at, live[first].after = s.at, live[len(live)-1].after
	s.entries = s.entries[:s.gone+first+1]
}

// live are the entries that count.
func (s *slidingLog) live() []entry { return s.entries[s.gone:] }

func (s *slidingLog) used() float64 {
	live := s.live()
	if len(live) == 0 {
		return 0
	}
	return live[len(live)-1].after - live[0].before
}

func (s *slidingLog) left(l *Limit) float64 { return remains(l, s.used()) }

func (s *slidingLog) take(l *Limit, n float64) {
	if n <= 0 {
		return // the debt is as deep as it gets
	}
	before := 0.0
	if live := s.live(); len(live) > 0 {
		last := &live[len(live)-1]
		if last.at == s.at || len(live) >= int(l.Requests) {
			last.at, last.after = s.at, last.after+n
			return
		}
		before = last.after
	}
	s.entries = append(s.entries, entry{at: s.at, before: before, after: before + n})
}

// give takes back what was taken last.
func (s *slidingLog) give(_ *Limit, n float64) {
	live := s.live()
	if n <= 0 || len(live) == 0 {
		return
	}
	left := max(live[len(live)-1].after-n, live[0].before)
	first := sort.Search(len(live), func(i int) bool { return live[i].after > left })
	if live[first].before < left {
		live[first].after = left
		first++
	}
	s.entries = s.entries[:s.gone+first]
}

// wait is until so many of the oldest tokens have expired as are missing.
func (s *slidingLog) wait(l *Limit, now, need float64) float64 {
	excess := s.used() - (l.Capacity() - need)
	if excess <= 0 {
		return 0
	}
	live := s.live()
	last := sort.Search(len(live), func(i int) bool { return live[i].after-live[0].before >= excess })
	return live[last].at + period(l) - now
}

func (s *slidingLog) idle(l *Limit, now float64) float64 {
	live := s.live()
	if len(live) == 0 {
		return 0
	}
	return live[len(live)-1].at + period(l) - now
}
