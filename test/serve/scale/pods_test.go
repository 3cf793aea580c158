package scale

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"strconv"
	"testing"
)

// pods are pods of 12 to 19 KB as an API server sends them, with managedFields. In each, all runs of at least eight hexadecimal digits are its own, as
// in the UIDs, checksums and IDs of containers and images of a cluster, so that one pod does not compress to a copy of another.
type pods struct {
	templates [][]piece
	listed    int // so many pods are in the namespace that is listed
	spread    int // the others are in so many namespaces
}

// piece is a part of a pod: text, or what differs between pods.
type piece struct {
	text []byte
	kind pieceKind
}

type pieceKind int

const (
	pieceText pieceKind = iota
	pieceName
	pieceNamespace
	pieceUID
	pieceVersion
	pieceTeam
	pieceHex
)

const (
	podListed = "listed" // the namespace that is listed
	teamPods  = 10_000   // pods with one value of the label team
)

var podPieces = regexp.MustCompile(`"name":"(pod-\d)","namespace":"(h4corpus)","uid":"([0-9a-f-]+)"|"resourceVersion":"(\d+)"|"team":"(payments)"|([0-9a-f]{8,})`)

// newPods reads the pods that were captured for bench.
func newPods(t testing.TB, listed, spread int) *pods {
	t.Helper()
	captured, err := os.ReadFile("../../../bench/internal/corpus/pods.ndjson")
	if err != nil {
		t.Fatal(err)
	}
	p := &pods{listed: listed, spread: spread}
	for frame := range bytes.Lines(captured) {
		var f struct{ Object json.RawMessage }
		if err := json.Unmarshal(frame, &f); err != nil {
			t.Fatal(err)
		}
		p.templates = append(p.templates, cut(f.Object))
	}
	return p
}

// cut cuts a pod into pieces.
func cut(pod []byte) (pieces []piece) {
	from := 0
	kinds := []pieceKind{pieceName, pieceNamespace, pieceUID, pieceVersion, pieceTeam, pieceHex} // in the order of the pattern's groups
	for _, found := range podPieces.FindAllSubmatchIndex(pod, -1) {
		for i, kind := range kinds {
			at, end := found[2*i+2], found[2*i+3]
			if at < 0 {
				continue
			}
			pieces = append(pieces, piece{text: pod[from:at]}, piece{pod[at:end], kind})
			from = end
		}
	}
	return append(pieces, piece{text: pod[from:]})
}

func (p *pods) name(i int) string { return fmt.Sprintf("pod-%07d", i) }

func (p *pods) namespace(i int) string {
	if i < p.listed {
		return podListed
	}
	return namespaceOf(i % p.spread)
}

func namespaceOf(n int) string { return fmt.Sprintf("ns-%04d", n) }

func (p *pods) team(i int) string { return fmt.Sprintf("team-%04d", i/teamPods) }

// append appends the JSON of a pod at a resourceVersion.
func (p *pods) append(to []byte, i int, version uint64) []byte {
	hex := rand.NewPCG(uint64(i), 1)
	for _, x := range p.templates[i%len(p.templates)] {
		switch x.kind {
		case pieceText:
			to = append(to, x.text...)
		case pieceName:
			to = append(to, p.name(i)...)
		case pieceNamespace:
			to = append(to, p.namespace(i)...)
		case pieceUID:
			to = append(to, p.uid(i)...)
		case pieceVersion:
			to = strconv.AppendUint(to, version, 10)
		case pieceTeam:
			to = append(to, p.team(i)...)
		case pieceHex:
			var bits uint64
			for n := range x.text {
				if n%16 == 0 {
					bits = hex.Uint64()
				}
				to = append(to, "0123456789abcdef"[bits&15])
				bits >>= 4
			}
		}
	}
	return to
}

func (p *pods) uid(i int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", i) }
