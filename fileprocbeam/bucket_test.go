package fileprocbeam_test

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/fileproc/fileproc"
	"github.com/stretchr/testify/require"
	"gocloud.dev/blob"
	"gocloud.dev/blob/fileblob"
	"gocloud.dev/blob/memblob"
)

// opener opens the directory that the parameter dir of a URL names as a bucket.
type opener struct{ opened atomic.Int64 }

func (o *opener) OpenBucketURL(ctx context.Context, u *url.URL) (*blob.Bucket, error) {
	if u.Path != "" {
		return nil, fmt.Errorf("%v has a path", u)
	}
	o.opened.Add(1)
	if u.Host == "odd" {
		bucket := memblob.OpenBucket(nil)
		for _, key := range []string{"a//b", "a/a/x", "a/b/y", "d/", "d/d", "e/", "ok"} {
			if err := bucket.WriteAll(ctx, key, nil, nil); err != nil {
				return nil, err
			}
		}
		return bucket, nil
	}
	return fileblob.OpenBucket(u.Query().Get("dir"), &fileblob.Options{NoTempDir: true, Metadata: fileblob.MetadataDontWrite})
}

var buckets opener

func init() { blob.DefaultURLMux().RegisterBucket("testbucket", &buckets) }

// TestBucket: each worker opens the bucket by its URL. A bucket gives what a directory gives.
func TestBucket(t *testing.T) {
	root := many(t, 3000)
	require.NoError(t, os.WriteFile(filepath.Join(root, "d3", "m"), []byte("poison"), 0o666))
	at := func(dir string) string { return "testbucket://b" + dir + "?dir=" + url.QueryEscape(root) }
	for _, opts := range []fileproc.Options{{}, {Stat: true, Workers: 2}, {ReadSize: fileproc.NoRead, Stat: true}, {ReadSize: 5}} {
		opts.Exclude = []string{"d3/m"}
		want := onOneMachine(t, root, opts)
		require.Len(t, want, 3000)
		results, failures, _, err := process(t, sums, at(""), opts)
		require.NoError(t, err)
		require.Equal(t, want, results)
		require.Nil(t, failures)
	}
	opts := fileproc.Options{Exclude: []string{"m"}}
	want := onOneMachine(t, filepath.Join(root, "d3"), opts)
	for _, dir := range []string{"/d3", "/d3/"} {
		results, failures, _, err := process(t, sums, at(dir), opts)
		require.NoError(t, err)
		require.Equal(t, want, results)
		require.Nil(t, failures)
	}
	results, failures, _, err := process(t, mishaps, at(""), fileproc.Options{Include: []string{"d3/m"}})
	require.NoError(t, err)
	require.Nil(t, results)
	require.Equal(t, []string{`"d3/m" "process d3/m: poisoned"`}, failures)
	require.Positive(t, buckets.opened.Load())

	results, failures, _, err = process(t, sums, "testbucket://b?dir=/nowhere/at/all", fileproc.Options{})
	require.ErrorContains(t, err, "/nowhere/at/all")
	require.Nil(t, results)
	require.Nil(t, failures)
}

// TestFailuresOfListing are among the failures. A key that is no path does not pass for another object: "a//b" for one in
// a/a, "d/" for d/d.
func TestFailuresOfListing(t *testing.T) {
	results, failures, _, err := process(t, sums, "testbucket://odd", fileproc.Options{})
	require.NoError(t, err)
	require.Len(t, results, 4)
	for i, name := range []string{"a/a/x", "a/b/y", "d/d", "ok"} {
		require.Contains(t, results[i], fmt.Sprintf("%q 0 ", name))
	}
	require.Equal(t, []string{`"a" "readdir a: keys that are no paths, for example [\"a//\"]"`}, failures)

	results, failures, _, err = process(t, sums, "testbucket://odd/e", fileproc.Options{}) // it has but its mark
	require.NoError(t, err)
	require.Nil(t, results)
	require.Nil(t, failures)
	_, _, _, err = process(t, sums, "testbucket://odd/none", fileproc.Options{})
	require.ErrorContains(t, err, "open none: ")
}
