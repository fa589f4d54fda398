//go:build race

package transport

const race = true
