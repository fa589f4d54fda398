// Package s3 tests package s3store on gofakes3, a server of S3 that others have written, in this process.
package s3
