//go:build !unix

package tool

import "os"

// Exit ends this process with the status that Main has returned.
func Exit(status int, _ *Console) { os.Exit(status) }
