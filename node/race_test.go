//go:build race

package node_test

const race = true
