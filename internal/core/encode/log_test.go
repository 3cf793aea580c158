package encode

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// A user who writes objects that do not fit, or that cannot be redacted, must not be able to fill the log.
func TestObjectLogIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, written := observer.New(zap.WarnLevel)
		log, c := newObjectLog(zap.New(core)), &collection{id: "configmaps"}
		write := func(object string) { log.write(zap.WarnLevel, "truncated", c, object) }
		wrote := func(want int) {
			t.Helper()
			if n := len(written.TakeAll()); n != want {
				t.Errorf("%d lines, want %d", n, want)
			}
		}
		for range 1000 {
			write("shop/a")
		}
		write("shop/b")
		wrote(2)
		time.Sleep(time.Second)
		for i := range 1000 {
			write(fmt.Sprint("shop/", i))
		}
		lines := written.All()
		wrote(linesASecond)
		if left := lines[0].ContextMap()["linesLeftOut"]; left != int64(0) && left != nil {
			t.Errorf("the first line leaves out %v: the line of shop/b has said it", left)
		}
		time.Sleep(time.Second)
		write("shop/a")
		if left := written.All()[0].ContextMap()["linesLeftOut"]; left != int64(1000-linesASecond) {
			t.Errorf("%v lines were left out, want %d", left, 1000-linesASecond)
		}
	})
}
