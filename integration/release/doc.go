// Package release tests that a release can be used: that every module can be fetched, and
// the tool installed, from the tags that .ci/release makes.
package release
