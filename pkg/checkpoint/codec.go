package checkpoint

import (
	"encoding/json"
	"fmt"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// Version is the format of a checkpoint: of its keys and values, and of the stores' own
// data. A store writes this version, and refuses any other.
const Version = 4

// CheckVersion compares the format of a checkpoint with [Version]. The errors wrap [ErrOlder] or
// [ErrNewer].
func CheckVersion(version int) error {
	switch {
	case version > Version:
		return fmt.Errorf("%w: it has format %d, this version reads format %d", ErrNewer, version, Version)
	case version < Version:
		return fmt.Errorf("%w: it has format %d, this version reads format %d", ErrOlder, version, Version)
	}
	return nil
}

// IdentityKey is the key of the checkpoint's identity.
func IdentityKey() []byte { return []byte("!identity") }

type identityRecord struct {
	Version  int            `json:"version"`
	Identity event.Identity `json:"identity"`
}

// EncodeIdentity encodes the identity of a checkpoint, with the format's version.
func EncodeIdentity(id event.Identity) []byte {
	b, _ := json.Marshal(identityRecord{Version: Version, Identity: id}) // cannot fail: strings and a number
	return b
}

// CheckIdentity compares a stored identity with want. The errors wrap
// [ErrCorrupt], [ErrOlder], [ErrNewer] or [ErrForeign] and say what differs. The cluster's
// configured name may change, its UID must not.
func CheckIdentity(stored []byte, want event.Identity) error {
	var r identityRecord
	if err := json.Unmarshal(stored, &r); err != nil || r.Version < 1 {
		return fmt.Errorf("%w: its identity record does not parse", ErrCorrupt)
	}
	if err := CheckVersion(r.Version); err != nil {
		return err
	}
	for _, f := range []struct{ name, got, want string }{
		{"cluster UID", r.Identity.ClusterUID, want.ClusterUID},
		{"bridge", r.Identity.Bridge, want.Bridge},
		{"sink", r.Identity.Sink, want.Sink},
	} {
		if f.got != f.want {
			return fmt.Errorf("%w: its %s is %q, this one is %q", ErrForeign, f.name, f.got, f.want)
		}
	}
	return nil
}

// MarkKey is the key of the mark of the last committed sink write.
func MarkKey() []byte { return []byte("!mark") }

// ResetKey is the key of a request for a reset, which the next start executes.
func ResetKey() []byte { return []byte("!reset") }

// ResetRequested is the value of [ResetKey].
func ResetRequested() []byte { return []byte("requested") }
