package source

import (
	"context"
	"errors"
)

var ErrGone = errors.New("gone")
var ErrOtherCluster = errors.New("other cluster")

type Name struct{ Namespace, Name string }

func (c *Collection) Alive(ctx context.Context, namespace, name, uid string) (alive, known bool) {
	return false, false
}

func (c *Collection) Recall(ctx context.Context, rv string, objects []Name, found func(*Object) error) error {
	return nil
}
func (c *Collection) Survey(ctx context.Context, h Handler) (string, error) { return "", nil }
