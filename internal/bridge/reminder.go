package bridge

import (
	"context"
	"maps"
	"regexp"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
)

const (
	// remindOutage is how often the log repeats a failure that is retried.
	remindOutage = time.Minute
	// remindAbsence is how often the log repeats that the API server does not serve a resource.
	remindAbsence = 10 * time.Minute
	// remindMost bounds the lines of one round, and the kinds of error of one failure between two rounds. The rest of a round is counted.
	remindMost = 10
)

// failure is an operation that fails and is retried, or a resource that is missing.
type failure struct {
	message string // of its log lines
	fields  []zap.Field
	err     error
	every   time.Duration // between two of its lines; 0: [remindOutage]
	steady  bool          // another err alone is not logged
	advice  string
	lasts   time.Duration // the failure is over when no attempt has failed for so long; 0: only a call of works ends it

	since, tried, logged time.Time
	attempts             int
	kinds                map[string]bool // logged since the last line of the interval
}

// withDigit matches words with a digit: names of files, ports, offsets, sizes.
var withDigit = regexp.MustCompile(`[[:alnum:]]*[0-9][[:alnum:]]*`)

// kind is what a failure has in common with failures whose errors differ in a number or in the name of a file: a disk that is full fails with
// another file each time.
func (f *failure) kind() string {
	if f.steady {
		return f.message
	}
	return f.message + ": " + withDigit.ReplaceAllLiteralString(f.err.Error(), "#")
}

// reminder logs failures when they begin, when another kind of error follows, and at an interval while they last, so
// that the log of the last minute shows every outage. Its methods may be called from any goroutine.
type reminder struct {
	log *zap.Logger

	mu       sync.Mutex
	failures map[string]*failure // by what fails
}

func newReminder(log *zap.Logger) *reminder {
	return &reminder{log: log, failures: map[string]*failure{}}
}

// failed records one more failed attempt of key. It reports whether the attempt before did not fail.
func (r *reminder) failed(key string, f failure) (first bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	f.since, f.tried, f.attempts, f.kinds = now, now, 1, map[string]bool{}
	before := r.failures[key]
	if before != nil {
		f.since, f.logged, f.attempts, f.kinds = before.since, before.logged, before.attempts+1, before.kinds
	}
	if f.every == 0 {
		f.every = remindOutage
	}
	r.failures[key] = &f
	if before == nil || !f.kinds[f.kind()] && len(f.kinds) < remindMost {
		r.say(&f, now)
	}
	return before == nil
}

// works records that key works. It returns how long key has failed, 0 if it has not failed.
func (r *reminder) works(key string) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.failures[key]
	if f == nil {
		return 0
	}
	delete(r.failures, key)
	return max(time.Since(f.since).Round(time.Millisecond), time.Millisecond)
}

// say logs a failure. The caller holds mu.
func (r *reminder) say(f *failure, now time.Time) {
	f.logged = now
	f.kinds[f.kind()] = true
	fields := append(slices.Clone(f.fields), zap.Error(f.err))
	if f.advice != "" {
		fields = append(fields, zap.String("advice", f.advice))
	}
	if now.After(f.since) {
		fields = append(fields, zap.Duration("failingFor", now.Sub(f.since).Round(time.Second)))
		if f.every == remindOutage { // there are no attempts for an absent resource
			fields = append(fields, zap.Int("attempts", f.attempts))
		}
	}
	r.log.Warn(f.message, fields...)
}

// run repeats failures until ctx ends.
func (r *reminder) run(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			r.remind()
		case <-ctx.Done():
			return
		}
	}
}

// remind logs failures again whose interval has passed.
func (r *reminder) remind() {
	r.mu.Lock()
	defer r.mu.Unlock()
	now, lines := time.Now(), 0
	for _, key := range slices.Sorted(maps.Keys(r.failures)) {
		f := r.failures[key]
		if f.lasts > 0 && now.Sub(f.tried) > f.lasts {
			delete(r.failures, key)
			continue
		}
		if now.Sub(f.logged) < f.every {
			continue
		}
		clear(f.kinds)
		if lines++; lines > remindMost {
			f.logged = now
			continue
		}
		r.say(f, now)
	}
	if lines > remindMost {
		r.log.Warn("more failures not logged: see `bridge status`", zap.Int("failing", lines-remindMost))
	}
}
