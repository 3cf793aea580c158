package main

import (
	"io"
	"os"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/term"

	"github.com/kubebridge/kubebridge/internal/base/terminal"
)

// logLevel returns the level for a configured name, which has been validated.
func logLevel(name string) zapcore.Level {
	level, err := zapcore.ParseLevel(name)
	if err != nil {
		return zapcore.InfoLevel
	}
	return level
}

// newLogger returns a logger that writes to w. It writes lines for people if format is console, or if
// format is auto and w is a terminal, and JSON otherwise.
func newLogger(format string, level zapcore.LevelEnabler, w io.Writer) *zap.Logger {
	e := zap.NewProductionEncoderConfig()
	e.TimeKey, e.EncodeTime = "time", zapcore.RFC3339NanoTimeEncoder
	e.EncodeDuration = zapcore.StringDurationEncoder
	encoder := zapcore.NewJSONEncoder(e)
	if format == "console" || format == "auto" && isTerminal(w) {
		e.EncodeTime = zapcore.TimeEncoderOfLayout("15:04:05.000")
		e.EncodeLevel = zapcore.CapitalLevelEncoder
		encoder = zapcore.NewConsoleEncoder(e)
		w = terminal.NewLegible(w)
	}
	return zap.New(zapcore.NewCore(encoder, zapcore.Lock(zapcore.AddSync(w)), level))
}

func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// terminalFormat returns the format for a writer whose output ends on a terminal.
func terminalFormat(format string) string {
	if format == "auto" {
		return "console"
	}
	return format
}

// document returns a writer for JSON or YAML documents. It writes byte for byte
// to a file or a pipe, and escapes control characters on a terminal.
func document(w io.Writer) io.Writer {
	if isTerminal(w) {
		return terminal.NewLegible(w)
	}
	return w
}
