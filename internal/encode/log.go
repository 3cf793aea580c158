package encode

import (
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// linesASecond is how many lines an [objectLog] writes in a second at most.
const linesASecond = 10

// objectLog writes lines of which each object can cause one with every change. In a second it writes the
// first line of a message and an object, and linesASecond in all; the next line that it writes says how
// many were left out. All of them are counted, see [Count].
type objectLog struct {
	log     *zap.Logger
	began   time.Time // of this second
	written map[line]struct{}
	left    int // out
}

type line struct{ message, collection, object string }

func newObjectLog(log *zap.Logger) *objectLog {
	return &objectLog{log: log, written: map[line]struct{}{}}
}

// write logs a message about an object, which is named as "namespace/name".
func (l *objectLog) write(level zapcore.Level, message string, c *collection, object string, fields ...zap.Field) {
	if now := time.Now(); now.Sub(l.began) >= time.Second {
		l.began = now
		clear(l.written)
	}
	key := line{message, c.id, object}
	if _, repeated := l.written[key]; repeated || len(l.written) == linesASecond {
		l.left++
		return
	}
	l.written[key] = struct{}{}
	if l.left > 0 {
		fields = append(fields, zap.Int("linesLeftOut", l.left))
		l.left = 0
	}
	l.log.Log(level, message, append([]zap.Field{zap.String("collection", c.id), zap.String("object", object)}, fields...)...)
}
