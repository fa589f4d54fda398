// Package s3store keeps the record of a group in an object of S3, or of a service like it: R2, Tigris, Ceph,
// versitygw, MinIO. It talks to the service by net/http, so it needs no other module.
//
//	record, err := s3store.Open(ctx, s3store.Config{
//		Endpoint: "https://s3.eu-central-1.amazonaws.com", Region: "eu-central-1", Bucket: "locks",
//	}, "invoices")
//	n, err := node.Open(ctx, record, link, node.Config{})
//
// The user may get, put and delete the objects whose names begin with that of the record, and list the bucket:
// who may not list is told 403 of an object that is not there.
//
// # What it relies on
//
// The service must read what was written last, and honour If-Match and If-None-Match, also when several write at
// once. Some services ignore these conditions, or check them before others have written. So Open
// tries the service with a few small objects, beside the record, and refuses one that fails. A service that is
// wrong only under some failures passes: its operator must know.
//
// Each object begins with a random name, because equal objects have equal ETags. Each request is sent once: a
// client that sends a PUT again may conflict with itself. A member loads the record 18 times a minute with a
// lease of 10 seconds, and writes only when the group changes. A load is one request where the ETag of an object is its
// MD5, and two where it is not, as with encryption by a key of KMS.
//
// Do not use replication between buckets, or a bucket that is restored to an earlier time, while a group runs. To
// begin with a new record, stop all members and delete the object.
package s3store

import (
	"bytes"
	"cmp"
	"context"
	"crypto/fips140"
	"crypto/md5"
	"crypto/rand"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/dmutex/dmutex/internal/onerequest"
	"github.com/dmutex/dmutex/store"
)

// Config says where the bucket is.
type Config struct {
	Endpoint string // the URL of the service, such as https://s3.eu-central-1.amazonaws.com
	Region   string // empty means us-east-1; for R2 auto
	Bucket   string

	// Credentials returns those of the user; it is asked for each request. nil means
	// those in AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN. For
	// a role or a profile, ask Credentials.Retrieve of the configuration that the SDK of AWS loads, and pass its fields on.
	Credentials func(ctx context.Context) (Credentials, error)

	// Client sends the requests. It must not send one again by itself. nil means one over HTTP/1.1 that does not.
	Client *http.Client
}

// Credentials sign a request. Token is empty unless they are temporary.
type Credentials struct{ AccessKeyID, SecretAccessKey, SessionToken string }

// fromEnvironment returns the credentials in the environment.
func fromEnvironment(context.Context) (Credentials, error) {
	c := Credentials{os.Getenv("AWS_ACCESS_KEY_ID"), os.Getenv("AWS_SECRET_ACCESS_KEY"), os.Getenv("AWS_SESSION_TOKEN")}
	if c.AccessKeyID == "" || c.SecretAccessKey == "" {
		return c, fmt.Errorf("%w: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or Config.Credentials", store.ErrUnusable)
	}
	return c, nil
}

type record struct {
	Config
	key string
}

// lawful are names that need no escapes in a URL: clients escape differently.
var lawful = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*(/[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*)*$`)

// Open returns the record in the object of that name, which need not exist: letters, digits, _ and -, with . and /
// between them, at most 512 bytes. It tries the service, which takes some 28 requests. The error wraps
// [store.ErrUnusable] if the service does not honour the conditions, or refuses the user.
func Open(ctx context.Context, cfg Config, name string) (store.Store, error) {
	u, err := url.Parse(cfg.Endpoint)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return nil, fmt.Errorf("s3store: %q is no URL of a service, such as https://s3.eu-central-1.amazonaws.com", cfg.Endpoint)
	case len(name) > 512 || !lawful.MatchString(name):
		return nil, fmt.Errorf("s3store: the name %q of an object may have letters, digits, _ and -, with . and / between them, at most 512 bytes", name)
	case strings.Contains(cfg.Bucket, "/") || !lawful.MatchString(cfg.Bucket):
		return nil, fmt.Errorf("s3store: %q is no name of a bucket", cfg.Bucket)
	}
	cfg.Region = cmp.Or(cfg.Region, "us-east-1")
	if cfg.Credentials == nil {
		cfg.Credentials = fromEnvironment
	}
	if cfg.Client == nil {
		cfg.Client = onerequest.Client(nil)
	}
	s := &record{cfg, name}
	if err := s.try(ctx); err != nil {
		return nil, s.failed("open", err)
	}
	return s, nil
}

// magic begins each object, and the name of the state follows.
const magic = "dmutex "

// Load implements [store.Store].
func (s *record) Load(ctx context.Context) ([]byte, store.Revision, error) {
	tag, body, err := s.get(ctx)
	if r := (*refusal)(nil); errors.As(err, &r) && r.Code == "NoSuchKey" {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", s.failed("load", err)
	}
	state, value, ok := bytes.Cut(body, []byte("\n"))
	if !ok || !bytes.HasPrefix(state, []byte(magic)) || tag == "" {
		return nil, "", s.failed("load", fmt.Errorf("%w: the object has no record of a group: another program uses it, so choose another name, or delete it", store.ErrUnusable))
	}
	return value, revision(string(state), tag), nil
}

// get reads the object with its ETag. Some services read the one and then the other, and an object that is written
// in between would give the ETag of its new state to the bytes of the old one, or the reverse. So an ETag that is not
// the MD5 of the bytes counts only if two answers in a row are equal.
func (s *record) get(ctx context.Context) (tag string, body []byte, err error) {
	const patience = 10
	for range patience {
		wasTag, was := tag, body
		if tag, body, err = s.send(ctx, http.MethodGet, s.key, nil, "", ""); err != nil {
			return "", nil, err
		}
		if strings.Trim(tag, `"`) == digest(body) || tag == wasTag && bytes.Equal(body, was) {
			return tag, body, nil
		}
	}
	return "", nil, fmt.Errorf("no two of %d loads in a row agree, and the ETag of this service is not the MD5 of the object, so it is unknown whether the two belong together: try again; if that never helps, use another service", patience)
}

// digest returns the MD5. It protects nothing here, so FIPS 140 does not forbid it.
func digest(body []byte) (sum string) {
	fips140.WithoutEnforcement(func() { sum = fmt.Sprintf("%x", md5.Sum(body)) })
	return sum
}

// Swap implements [store.Store].
func (s *record) Swap(ctx context.Context, value []byte, rev store.Revision) (store.Revision, error) {
	state := magic + rand.Text()
	_, tag, _ := strings.Cut(string(rev), "/")
	next, err := s.put(ctx, s.key, append([]byte(state+"\n"), value...), tag)
	if err != nil {
		return "", s.failed("swap", err)
	}
	return revision(state, next), nil
}

func revision(state, tag string) store.Revision {
	return store.Revision(strings.TrimPrefix(state, magic) + "/" + tag)
}

// put writes an object if it has this ETag, or if it does not exist and the tag is empty.
func (s *record) put(ctx context.Context, key string, body []byte, tag string) (next string, err error) {
	condition, value := "If-Match", tag
	if tag == "" {
		condition, value = "If-None-Match", "*"
	}
	next, _, err = s.send(ctx, http.MethodPut, key, body, condition, value)
	if r := (*refusal)(nil); errors.As(err, &r) && (r.status == http.StatusPreconditionFailed || r.status == http.StatusConflict || r.Code == "NoSuchKey") {
		err = fmt.Errorf("%w: %w", store.ErrConflict, err)
	}
	if err == nil && next == "" {
		err = fmt.Errorf("%w: the service tells no ETag of what was written", store.ErrUnusable)
	}
	return next, err
}

// A refusal is an answer of the service that is no success.
type refusal struct {
	status        int
	Code, Message string
}

func (r *refusal) Error() string {
	return strings.Join(strings.Fields(fmt.Sprintf("%d %s: %s", r.status, r.Code, r.Message)), " ")
}

// send sends a request, once.
func (s *record) send(ctx context.Context, method, key string, body []byte, header, value string) (tag string, got []byte, err error) {
	who, err := s.Credentials(ctx)
	if err != nil {
		return "", nil, err
	}
	request, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(s.Endpoint, "/")+"/"+s.Bucket+"/"+key, bytes.NewReader(body))
	if err != nil {
		return "", nil, err
	}
	if header != "" {
		request.Header.Set(header, value)
	}
	sign(request, body, who, s.Region, time.Now())
	request.Header.Set("Accept-Encoding", "identity") // a proxy that compresses tells an ETag by which nobody can write
	answer, err := s.Client.Do(request)
	if err != nil {
		return "", nil, err
	}
	defer answer.Body.Close()
	if got, err = io.ReadAll(io.LimitReader(answer.Body, 4<<20)); err != nil {
		return "", nil, err
	}
	if answer.StatusCode/100 != 2 {
		r := &refusal{status: answer.StatusCode}
		_ = xml.Unmarshal(got, r)
		r.Code = cmp.Or(r.Code, http.StatusText(r.status))
		return "", nil, r
	}
	return answer.Header.Get("ETag"), got, nil
}

// failed says what to do about an error that recurs.
func (s *record) failed(op string, err error) error {
	if r := (*refusal)(nil); errors.As(err, &r) && !errors.Is(err, store.ErrConflict) {
		switch {
		case r.status == http.StatusForbidden || r.status == http.StatusUnauthorized:
			err = fmt.Errorf("%w: the user may not get and put the object, or not list the bucket, or this machine's clock is wrong: %w", store.ErrUnusable, err)
		case r.status/100 == 3 || r.status == http.StatusBadRequest || r.status == http.StatusNotFound || r.status == http.StatusMethodNotAllowed || r.status == http.StatusNotImplemented:
			err = fmt.Errorf("%w: %w", store.ErrUnusable, err)
		}
	}
	return fmt.Errorf("s3store: %s %s/%s: %w", op, s.Bucket, s.key, err)
}

// try finds out whether the service honours the conditions, also when several write at once, and takes a write by the
// ETag that a load tells.
func (s *record) try(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	const writers, rounds = 6, 4
	key := s.key + ".try-" + rand.Text()
	broken := func(how string) error {
		return fmt.Errorf("%w: the service %s, so two could write the record: use another one", store.ErrUnusable, how)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_, _, _ = s.send(ctx, http.MethodDelete, key, nil, "", "") // it may stay
	}()
	_, err := s.put(ctx, key, []byte("0"), `"00000000000000000000000000000000"`)
	if err == nil {
		return broken("ignores If-Match")
	}
	tag := ""
	for round := range rounds {
		var writing sync.WaitGroup
		var tags [writers]string
		var errs [writers]error
		for i := range writers {
			writing.Go(func() { tags[i], errs[i] = s.put(ctx, key, fmt.Appendf(nil, "%d.%d", round, i), tag) })
		}
		writing.Wait()
		won := 0
		for i := range writers {
			switch {
			case errs[i] == nil:
				won, tag = won+1, tags[i]
			case !errors.Is(errs[i], store.ErrConflict):
				return errs[i]
			}
		}
		if won > 1 {
			return broken("takes more than one of several conditional writes at once")
		}
	}
	if !errors.Is(err, store.ErrConflict) {
		return err // as nothing else has failed
	}
	if tag, _, err = s.send(ctx, http.MethodGet, key, nil, "", ""); err != nil {
		return err
	}
	if _, err = s.put(ctx, key, []byte("last"), tag); errors.Is(err, store.ErrConflict) {
		return fmt.Errorf("%w: the service refuses a write by the ETag that it tells, so nobody could change the record: use another one, or none of the proxies before it", store.ErrUnusable)
	}
	return err
}
