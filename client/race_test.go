//go:build race

package client_test

const race = true
