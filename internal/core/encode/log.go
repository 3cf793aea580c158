package encode

import (
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// linesASecond is the maximum number of lines that an [objectLog] writes per second.
const linesASecond = 10

// objectLog limits log lines that an object can cause with every change. Per second it writes one line per
// message and object, and at most linesASecond lines. The next line says how
// many were left out. The metrics count all of them, see [Count].
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
