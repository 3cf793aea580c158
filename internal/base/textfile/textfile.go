// Package textfile reads text files that people and other programs write, also those with certificates.
package textfile

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
)

// ErrUTF16 is returned for a text that begins with the byte order mark of UTF-16.
var ErrUTF16 = errors.New("it is UTF-16, as some programs for Windows write it: save it as UTF-8")

// Decode returns a text without the byte order mark of UTF-8. It returns [ErrUTF16] for a text in UTF-16.
func Decode(text []byte) ([]byte, error) {
	if bytes.HasPrefix(text, []byte{0xff, 0xfe}) || bytes.HasPrefix(text, []byte{0xfe, 0xff}) {
		return nil, ErrUTF16
	}
	return bytes.TrimPrefix(text, []byte("\ufeff")), nil
}

// Read returns the text of a file as [Decode] does. Its errors name the file.
func Read(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	text, err = Decode(text)
	if err != nil {
		return "", &os.PathError{Op: "read", Path: path, Err: err}
	}
	return string(text), nil
}

// CAs returns the certificates of a PEM file. Its errors name the file.
func CAs(path string) (*x509.CertPool, error) {
	text, err := Read(path)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(text)) {
		return nil, fmt.Errorf("%s has no certificate in PEM", path)
	}
	return pool, nil
}
