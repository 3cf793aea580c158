//go:build !independent

package main

// independent says which core runs. `go build -tags independent` has the program use the one of
// docs/adr/0017, of which not everything is built yet.
const independent = false
