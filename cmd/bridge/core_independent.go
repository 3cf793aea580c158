//go:build independent

package main

const independent = true
