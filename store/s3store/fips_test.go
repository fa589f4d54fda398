package s3store

import (
	"crypto/fips140"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// A program that allows only what FIPS 140 does can load a record: crypto/md5 would panic.
func TestOnlyFIPS(t *testing.T) {
	if fips140.Enforced() { // in the child
		require.Equal(t, "900150983cd24fb0d6963f7d28e17f72", digest([]byte("abc")))
		return
	}
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestOnlyFIPS$")
	child.Env = append(os.Environ(), "GODEBUG=fips140=only")
	out, err := child.CombinedOutput()
	require.NoError(t, err, "%s", out)
}
