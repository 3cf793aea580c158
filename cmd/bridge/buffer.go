package main

import (
	"context"
	"crypto/hkdf"
	"crypto/sha256"
	"fmt"

	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/base/spool"
	"github.com/kubebridge/kubebridge/internal/bridge"
	"github.com/kubebridge/kubebridge/internal/config"
	"github.com/kubebridge/kubebridge/internal/operate/leader"
)

// bufferSpec describes the configured disk buffer; nil: there is none.
func bufferSpec(c *config.Config, elector *leader.Elector, log *zap.Logger) *bridge.BufferSpec {
	if c.Buffer.Path == "" {
		return nil
	}
	spec := &bridge.BufferSpec{MaxAge: c.Buffer.MaxAge}
	if c.Buffer.Standby {
		spec.Note = elector.Note(c.BufferList())
	}
	spec.Open = func(ctx context.Context) (*spool.Spool, bool, error) {
		key, err := derivedKey(ctx, c, "kubebridge disk buffer", log)
		if err != nil {
			return nil, false, err
		}
		s, err := spool.Open(c.Buffer.Path, spool.Options{MaxBytes: int64(c.Buffer.MaxBytes), Key: key, Local: true})
		if err != nil {
			return nil, false, fmt.Errorf("buffer.path: %w", err)
		}
		if key == nil {
			log.Info("no hash key, so objects with hidden values are not buffered: set secrets.hashKeySecret or secrets.hashKeyFile")
		}
		return s, key != nil, nil
	}
	return spec
}

// derivedKey derives a key for one use from the key for hashing; nil: there is none.
func derivedKey(ctx context.Context, c *config.Config, use string, log *zap.Logger) ([]byte, error) {
	key, err := hashKey(ctx, c, log)
	if err != nil || key == nil {
		return nil, err
	}
	return hkdf.Key(sha256.New, key, nil, use, sha256.Size)
}
