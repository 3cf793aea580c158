package pipeline

import (
	"context"
	"errors"
	"testing"
)

// TestCallerGivesUp: who asks a lane and does not wait for the answer shares
// nothing with the lane, which answers later. The race detector is the judge.
func TestCallerGivesUp(t *testing.T) {
	for name, ask := range map[string]func(context.Context, *Lane) (int, error){
		"Known": func(ctx context.Context, l *Lane) (int, error) {
			list, err := l.Known(ctx)
			return len(list), err
		},
		"Resync": func(ctx context.Context, l *Lane) (int, error) {
			ids, err := l.Resync(ctx, "configmaps")
			return len(ids), err
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := &Lane{calls: make(chan call), reads: openMem(t), members: map[string]*member{"configmaps": {id: "configmaps"}}}
			l.members["configmaps"].note.Resync = "under way"
			ctx, giveUp := context.WithCancel(t.Context())
			answered := make(chan error)
			go func() {
				c := <-l.calls
				giveUp()
				answered <- c.do(t.Context())
			}()
			if n, err := ask(ctx, l); n != 0 || !errors.Is(err, context.Canceled) {
				t.Errorf("%d, %v, want nothing and that it was given up", n, err)
			}
			if err := <-answered; err != nil {
				t.Error(err)
			}
		})
	}
}
