package s3store

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"slices"
	"strings"
	"time"
)

// sign signs a request by Signature Version 4 of AWS ("Authenticating Requests: Using the Authorization
// Header", Amazon S3 API Reference). The path and the query must need no escapes.
func sign(r *http.Request, body []byte, c Credentials, region string, now time.Time) {
	at := now.UTC().Format("20060102T150405Z")
	sum := sha256.Sum256(body)
	r.Header.Set("X-Amz-Date", at)
	r.Header.Set("X-Amz-Content-Sha256", hex.EncodeToString(sum[:]))
	if c.SessionToken != "" {
		r.Header.Set("X-Amz-Security-Token", c.SessionToken)
	}
	names := []string{"host"}
	for name := range r.Header {
		names = append(names, strings.ToLower(name))
	}
	slices.Sort(names)
	var headers strings.Builder
	for _, name := range names {
		value := r.Header.Get(name)
		if name == "host" {
			value = r.URL.Host
		}
		headers.WriteString(name + ":" + strings.TrimSpace(value) + "\n")
	}
	signed := strings.Join(names, ";")
	canonical := strings.Join([]string{r.Method, r.URL.EscapedPath(), r.URL.RawQuery, headers.String(), signed, hex.EncodeToString(sum[:])}, "\n")
	scope := at[:8] + "/" + region + "/s3/aws4_request"
	hash := sha256.Sum256([]byte(canonical))
	text := "AWS4-HMAC-SHA256\n" + at + "\n" + scope + "\n" + hex.EncodeToString(hash[:])
	key := []byte("AWS4" + c.SecretAccessKey)
	for _, part := range []string{at[:8], region, "s3", "aws4_request", text} {
		m := hmac.New(sha256.New, key)
		m.Write([]byte(part))
		key = m.Sum(nil)
	}
	r.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential="+c.AccessKeyID+"/"+scope+", SignedHeaders="+signed+", Signature="+hex.EncodeToString(key))
}
