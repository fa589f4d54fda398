//go:build race

package wire

const race = true
