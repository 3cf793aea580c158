package nats

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"
)

// duplicateWindow is how long a stream should remember the ids of its messages. A
// bridge that restarts or reconnects within this time publishes no duplicates.
const duplicateWindow = 2 * time.Minute

// finding is the check of one setting of a stream.
type finding struct {
	wrong       bool // whether it is
	breaks      bool // whether the guarantee depends on it
	found, want string
	advice      string
}

func (f finding) mismatch() string { return f.found + ", want " + f.want }

func (f finding) String() string { return f.mismatch() + ": " + f.advice }

// divide divides the wrong settings into settings that a guarantee depends on, and others.
func divide(lists ...[]finding) (breaks, weak []finding) {
	for _, f := range slices.Concat(lists...) {
		switch {
		case !f.wrong:
		case f.breaks:
			breaks = append(breaks, f)
		default:
			weak = append(weak, f)
		}
	}
	return breaks, weak
}

const (
	// correct is the remedy for a setting that can be changed.
	correct = "correct it with `nats stream edit`; the bridge declares a reset if messages were lost"
	// recreate is the remedy for one that cannot. A second stream cannot take the subjects of the first one.
	recreate = "delete it, or take its subjects from it and set nats.stream.name to another name: the bridge creates a stream, and declares a reset"
)

// settings returns the checks for every stream. With alone, the stream belongs to one pipeline and must not get messages
// from other streams.
func settings(c jetstream.StreamConfig, replicas int, alone bool) []finding {
	fixed, retention := recreate, correct
	if !alone {
		fixed = "let another stream take the subjects, and name it in nats.stream.name"
	}
	if c.Retention == jetstream.WorkQueuePolicy {
		retention = fixed
	}
	return []finding{
		{c.Retention != jetstream.LimitsPolicy, true, "its retention is " + strings.ToLower(c.Retention.String()), "limits", "messages would vanish once consumed: " + retention},
		{c.Mirror != nil || len(c.Sources) > 0 && alone, true, "it copies from other streams", "no mirror and no sources", "other messages would come between: " + fixed},
		{c.NoAck, true, "its no_ack is true", "false", "the server would acknowledge nothing: " + correct},
		{c.Sealed, true, "it is sealed", "a stream that takes messages", "nobody can open it again: delete it with `nats stream rm`: the bridge creates another one, and declares a reset"},
		{c.PersistMode == jetstream.AsyncPersistMode, true, "its persist_mode is async", "default", "it would acknowledge what it can still lose: " + fixed},
		{c.AllowMsgCounter, true, "its allow_msg_counter is true", "false", "it takes numbers only: " + fixed},
		{c.DiscardNewPerSubject, true, "its discard_new_per_subject is true", "false", "a subject that is full would hold everything back: " + correct},
		{c.Storage != jetstream.FileStorage, false, "its storage is memory", "file", "what it holds is lost when its servers end, and a reset follows"},
		{c.Replicas < replicas, false, fmt.Sprintf("its num_replicas is %d", c.Replicas), fmt.Sprint(replicas), "raise it with `nats stream edit`, or correct nats.stream.replicas"},
	}
}

// transforms reports whether a transform changes messages of a subject, which may be a pattern.
func transforms(t *jetstream.SubjectTransformConfig, subject string) bool {
	return t != nil && (t.Source == "" || overlap(t.Source, subject))
}

// inspect refuses a stream whose settings break the guarantee of the delivery, and
// warns about other settings that are not as configured, about each once until it changes.
func (l *link) inspect(c jetstream.StreamConfig) error {
	breaks, weak := l.judge(c)
	before := l.warned
	l.warned = map[string]bool{}
	for _, f := range weak {
		if l.warned[f.String()] = true; before[f.String()] {
			continue
		}
		l.log.Warn("stream settings are not as recommended", zap.String("stream", l.name),
			zap.String("found", f.found), zap.String("want", f.want), zap.String("advice", f.advice))
	}
	if len(breaks) == 0 {
		return nil
	}
	return l.refuse(errors.Join(sentences(breaks)...), "")
}

// sentences returns findings as errors.
func sentences(all []finding) (errs []error) {
	for _, f := range all {
		errs = append(errs, errors.New(f.String()))
	}
	return errs
}

// judge returns the settings that break the guarantee of the delivery, and other settings that are
// not as recommended.
func (l *link) judge(c jetstream.StreamConfig) (breaks, weak []finding) {
	alone := l.config.Delivery == exactlyOnce
	want := l.config.Stream
	maxAge, maxBytes := max(want.MaxAge, 0), int64(max(want.MaxBytes, 0))
	return divide(settings(c, want.Replicas, alone), []finding{
		{alone && c.MaxMsgsPerSubject > 0, true, fmt.Sprintf("it keeps only %d messages per subject (max_msgs_per_subject)", c.MaxMsgsPerSubject), "-1", "others would vanish from the middle: " + correct},
		{!alone && c.MaxMsgsPerSubject > 0 && !l.config.perEntry(), false, fmt.Sprintf("it keeps only %d messages per subject (max_msgs_per_subject), and nats.subject has no {entry}", c.MaxMsgsPerSubject), "-1, or {entry} in nats.subject", "events of one entry remove those of another entry of the same resource"},
		{maxAge > 0 && c.MaxAge != maxAge, false, fmt.Sprintf("its max_age is %v", c.MaxAge), maxAge.String(), "change it with `nats stream edit`, or correct nats.stream.maxAge"},
		{maxBytes > 0 && c.MaxBytes != maxBytes, false, fmt.Sprintf("its max_bytes is %d", c.MaxBytes), fmt.Sprint(maxBytes), "change it with `nats stream edit`, or correct nats.stream.maxBytes"},
		{c.MaxMsgSize > 0, false, fmt.Sprintf("its max_msg_size is %d", c.MaxMsgSize), "-1", "larger events are cut down to it"},
		{c.Discard != jetstream.DiscardOld, false, "its discard is new", "old", "once it is full it takes nothing, and the bridge waits"},
		{!alone && c.Duplicates < duplicateWindow, false, fmt.Sprintf("its duplicate_window is %v", c.Duplicates), duplicateWindow.String(), "what is sent again later than that is there twice"},
		{alone && transforms(c.SubjectTransform, termSubject(l.id)), true, "it changes the subject " + termSubject(l.id) + " (subject_transform)", "none", "the bridge would not find its own messages: " + correct},
		{c.SubjectTransform != nil, false, "it changes subjects (subject_transform)", "none", "consumers find events under the changed ones, and `bridge serve`, `bridge state` and `bridge history` do not read them"},
	})
}
