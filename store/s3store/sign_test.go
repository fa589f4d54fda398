package s3store

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The signature of the first example of AWS, "GET Object", in "Signature Calculations for the Authorization
// Header: Transferring Payload in a Single Chunk".
func TestSign(t *testing.T) {
	r, err := http.NewRequest(http.MethodGet, "https://examplebucket.s3.amazonaws.com/test.txt", nil)
	require.NoError(t, err)
	r.Header.Set("Range", "bytes=0-9")
	sign(r, nil, Credentials{AccessKeyID: "AKIAIOSFODNN7EXAMPLE", SecretAccessKey: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"},
		"us-east-1", time.Date(2013, 5, 24, 0, 0, 0, 0, time.UTC))
	require.Equal(t, "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, "+
		"SignedHeaders=host;range;x-amz-content-sha256;x-amz-date, "+
		"Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41", r.Header.Get("Authorization"))
	sign(r, nil, Credentials{AccessKeyID: "a", SecretAccessKey: "b", SessionToken: "c"}, "r", time.Now())
	require.True(t, strings.Contains(r.Header.Get("Authorization"), ";x-amz-security-token,"))
}
