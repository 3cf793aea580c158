package checkpoint

import (
	"encoding/binary"
	"encoding/hex"
	"strconv"
)

// Texts are stored after their length. UIDs and resourceVersions begin with one more byte: it is 1 for the short forms of a canonical
// UUID and a decimal number, and 0 for a text.

// AppendText appends a text.
func AppendText(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

// AppendUID appends an object's uid: 17 bytes for a canonical UUID.
func AppendUID(b []byte, uid string) []byte {
	if len(uid) == 36 && uid[8] == '-' && uid[13] == '-' && uid[18] == '-' && uid[23] == '-' {
		var raw [16]byte
		n := 0
		for _, part := range [...]string{uid[:8], uid[9:13], uid[14:18], uid[19:23], uid[24:]} {
			for i := 0; i < len(part); i += 2 {
				high, ok := hexDigit(part[i])
				low, also := hexDigit(part[i+1])
				if !ok || !also {
					return AppendText(append(b, 0), uid)
				}
				raw[n] = high<<4 | low
				n++
			}
		}
		return append(append(b, 1), raw[:]...)
	}
	return AppendText(append(b, 0), uid)
}

// AppendVersion appends a resourceVersion: at most 11 bytes for a decimal one.
func AppendVersion(b []byte, rv string) []byte {
	if rv == "0" || rv != "" && rv[0] >= '1' { // without leading zeros, so that decoding restores the same text
		if n, err := strconv.ParseUint(rv, 10, 64); err == nil {
			return binary.AppendUvarint(append(b, 1), n)
		}
	}
	return AppendText(append(b, 0), rv)
}

// hexDigit returns the value of a lower-case hexadecimal digit.
func hexDigit(c byte) (byte, bool) {
	switch {
	case '0' <= c && c <= '9':
		return c - '0', true
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10, true
	}
	return 0, false
}

func appendUUID(b, raw []byte) []byte {
	b = hex.AppendEncode(b, raw[:4])
	for _, part := range [...][]byte{raw[4:6], raw[6:8], raw[8:10], raw[10:]} {
		b = hex.AppendEncode(append(b, '-'), part)
	}
	return b
}

// Decoder decodes the results of the Append functions of this package. After the first error its
// methods return zero values.
type Decoder struct {
	b      []byte
	failed bool
}

// NewDecoder returns a decoder of b. It does not keep b.
func NewDecoder(b []byte) *Decoder { return &Decoder{b: b} }

// Failed reports whether a value could not be decoded.
func (d *Decoder) Failed() bool { return d.failed }

// Take reads n bytes; nil if there are fewer.
func (d *Decoder) Take(n int) []byte {
	if d.failed || len(d.b) < n {
		d.failed = true
		return nil
	}
	v := d.b[:n]
	d.b = d.b[n:]
	return v
}

// Byte reads one byte.
func (d *Decoder) Byte() byte {
	if b := d.Take(1); b != nil {
		return b[0]
	}
	return 0
}

// Uvarint reads a number of variable length.
func (d *Decoder) Uvarint() uint64 {
	n, w := binary.Uvarint(d.b)
	if d.failed || w <= 0 {
		d.failed = true
		return 0
	}
	d.b = d.b[w:]
	return n
}

// Text reads a text of [AppendText]. If the text equals like, that string is shared.
func (d *Decoder) Text(like string) string {
	n := d.Uvarint()
	if n > uint64(len(d.b)) {
		d.failed = true
		return ""
	}
	return shared(d.Take(int(n)), like)
}

// Rest reads the remaining bytes as a text.
func (d *Decoder) Rest(like string) string { return shared(d.Take(len(d.b)), like) }

// UID reads a uid of [AppendUID].
func (d *Decoder) UID(like string) string {
	if d.isShortForm() {
		if raw := d.Take(16); raw != nil {
			var text [36]byte
			return shared(appendUUID(text[:0], raw), like)
		}
		return ""
	}
	return d.Text(like)
}

// Version reads a resourceVersion of [AppendVersion].
func (d *Decoder) Version() string {
	if d.isShortForm() {
		return strconv.FormatUint(d.Uvarint(), 10)
	}
	return d.Text("")
}

func (d *Decoder) isShortForm() bool { return d.Byte() == 1 }

func shared(b []byte, like string) string {
	if string(b) == like {
		return like
	}
	return string(b)
}
