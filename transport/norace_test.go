//go:build !race

package transport

const race = false
