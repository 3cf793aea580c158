package durable

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/kubebridge/kubebridge/internal/core/reconcile"
	"github.com/kubebridge/kubebridge/pkg/checkpoint"
)

const (
	flagAtIsVersion = 1 << iota // At is Version
	flagPublished               // Run, At and AtDigest follow
	flagAtDigest                // AtDigest is Digest
	flagRunIsJudged             // Run is Judged
	flagDeleted                 // the intent is to delete
	flagSignificant             // Significant follows
)

// giveUp adds the remedy to an error about content that does not parse.
func giveUp(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: put a copy of the checkpoint back, or give it up with `bridge checkpoint reset`", err)
}

// appendObject appends an inventory entry. extra has flags in addition to those of the object.
func appendObject(b []byte, o *reconcile.Object, extra byte) []byte {
	flags := extra
	published := o.Run != 0 || o.At != "" || !o.AtDigest.IsZero()
	for _, f := range [...]struct {
		flag byte
		set  bool
	}{
		{flagPublished, published},
		{flagAtIsVersion, published && o.At == o.Version},
		{flagAtDigest, published && o.AtDigest == o.Digest},
		{flagRunIsJudged, published && o.Run == o.Judged},
		{flagSignificant, !o.Significant.IsZero()},
	} {
		if f.set {
			flags |= f.flag
		}
	}
	b = append(b, flags, byte(o.Status))
	b = append(b, o.Digest[:]...)
	b = checkpoint.AppendUID(b, o.UID)
	b = checkpoint.AppendVersion(b, o.Version)
	b = binary.AppendUvarint(b, o.Judged)
	if published {
		if flags&flagRunIsJudged == 0 {
			b = binary.AppendUvarint(b, o.Run)
		}
		if flags&flagAtIsVersion == 0 {
			b = checkpoint.AppendVersion(b, o.At)
		}
		if flags&flagAtDigest == 0 {
			b = append(b, o.AtDigest[:]...)
		}
	}
	if !o.Significant.IsZero() {
		b = append(b, o.Significant[:]...)
	}
	b = checkpoint.AppendText(b, o.APIVersion)
	return append(b, o.Kind...)
}

// decodeObject reverses appendObject. like is another entry: strings that are equal in both are shared,
// which saves memory.
func decodeObject(b []byte, like *reconcile.Object) (o reconcile.Object, flags byte, err error) {
	d := checkpoint.NewDecoder(b)
	flags = d.Byte()
	o.Status = reconcile.Status(d.Byte())
	copy(o.Digest[:], d.Take(len(o.Digest)))
	o.UID = d.UID(like.UID)
	o.Version = d.Version()
	o.Judged = d.Uvarint()
	if flags&flagPublished != 0 {
		o.Run, o.At, o.AtDigest = o.Judged, o.Version, o.Digest
		if flags&flagRunIsJudged == 0 {
			o.Run = d.Uvarint()
		}
		if flags&flagAtIsVersion == 0 {
			o.At = d.Version()
		}
		if flags&flagAtDigest == 0 {
			copy(o.AtDigest[:], d.Take(len(o.AtDigest)))
		}
	}
	if flags&flagSignificant != 0 {
		copy(o.Significant[:], d.Take(len(o.Significant)))
	}
	o.APIVersion = d.Text(like.APIVersion)
	o.Kind = d.Rest(like.Kind)
	if d.Failed() || o.Status > reconcile.Skipped {
		return reconcile.Object{}, 0, fmt.Errorf("%w: inventory entry of %d bytes", checkpoint.ErrCorrupt, len(b))
	}
	return o, flags, nil
}

// appendIntent appends an intent: its epoch, then the object.
func appendIntent(b []byte, i *reconcile.Intent) []byte {
	extra := byte(0)
	if i.Deleted {
		extra = flagDeleted
	}
	return appendObject(binary.AppendUvarint(b, i.Epoch), &i.Object, extra)
}

func decodeIntent(b []byte) (reconcile.Intent, error) {
	epoch, n := binary.Uvarint(b)
	if n <= 0 {
		return reconcile.Intent{}, fmt.Errorf("%w: intent of %d bytes", checkpoint.ErrCorrupt, len(b))
	}
	o, flags, err := decodeObject(b[n:], &reconcile.Object{})
	if err != nil {
		return reconcile.Intent{}, fmt.Errorf("intent: %w", err)
	}
	return reconcile.Intent{Object: o, Deleted: flags&flagDeleted != 0, Epoch: epoch}, nil
}

func encodeRecord(r reconcile.Record) []byte {
	b, _ := json.Marshal(r) // cannot fail: strings, numbers and booleans
	return b
}

func decodeRecord(b []byte) (r reconcile.Record, err error) {
	if err := json.Unmarshal(b, &r); err != nil {
		return r, fmt.Errorf("%w: record of a collection: %w", checkpoint.ErrCorrupt, err)
	}
	return r, nil
}

// decodeProgress decodes the position and the highest version seen, which are separated by a space. A resourceVersion has no spaces.
func decodeProgress(b []byte) (p reconcile.Progress, err error) {
	position, seen, found := strings.Cut(string(b), " ")
	if !found {
		return p, fmt.Errorf("%w: position %q", checkpoint.ErrCorrupt, b)
	}
	return reconcile.Progress{Position: position, Seen: seen}, nil
}

func encodeDraft(d reconcile.Draft) []byte {
	b, _ := json.Marshal(d) // cannot fail: strings, numbers and booleans
	return b
}

func decodeDraft(b []byte) (d reconcile.Draft, err error) {
	if err := json.Unmarshal(b, &d); err != nil {
		return d, fmt.Errorf("%w: draft of a collection: %w", checkpoint.ErrCorrupt, err)
	}
	return d, nil
}

func decodeEpoch(b []byte) (uint64, error) {
	epoch, err := strconv.ParseUint(string(b), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%w: epoch %q", checkpoint.ErrCorrupt, b)
	}
	return epoch, nil
}
