package fileprocbeam

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/apache/beam/sdks/v2/go/pkg/beam"
	"github.com/fileproc/fileproc"
	"github.com/stretchr/testify/require"
	"gocloud.dev/blob"
	"gocloud.dev/blob/memblob"
)

var paths = Register("paths", func(f *fileproc.File) (string, error) { return f.Rel(), nil })

// list returns the batches of a job.
func list(t *testing.T, root string) (b []byte, batches [][]byte) {
	b, err := newJob(root, fileproc.Options{})
	require.NoError(t, err)
	l := listFn{Job: b}
	require.NoError(t, l.Setup(t.Context()))
	require.NoError(t, l.ProcessElement(t.Context(), nil, func(b []byte) { batches = append(batches, b) },
		func(f Failure) { t.Error(f) }))
	require.NoError(t, l.Teardown())
	return b, batches
}

// TestVanished: a file that vanishes after it was listed is a failure, also in a bucket, and others have their results.
func TestVanished(t *testing.T) {
	root := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(root, "d"), 0o777))
	for _, name := range []string{"d/a", "d/b", "c"} {
		require.NoError(t, os.WriteFile(filepath.Join(root, filepath.FromSlash(name)), nil, 0o666))
	}
	job, batches := list(t, root)
	require.Len(t, batches, 1)
	require.NoError(t, os.Remove(filepath.Join(root, "d", "b")))

	p := processFn[string]{Name: paths.name, Job: job}
	require.NoError(t, p.Setup(t.Context()))
	check := func(dir, want string) {
		var results []string
		var failures []Failure
		require.NoError(t, p.ProcessElement(t.Context(), batches[0], func(s string) { results = append(results, s) },
			func(f Failure) { failures = append(failures, f) }))
		require.ElementsMatch(t, []string{"d/a", "c"}, results)
		require.Len(t, failures, 1)
		require.Equal(t, want, failures[0].Path)
		require.Contains(t, failures[0].Error, want)
	}
	check(root, filepath.Join(root, "d", "b"))

	bucket := memblob.OpenBucket(nil)
	defer bucket.Close()
	for _, name := range []string{"d/a", "c"} {
		require.NoError(t, bucket.WriteAll(t.Context(), name, nil, nil))
	}
	bucket.SetIOFSCallback(func() (context.Context, *blob.ReaderOptions) {
		t.Error("the bucket was used as an fs.FS, which lists directories")
		return t.Context(), nil
	})
	p.src = source{".", bucket}
	check(".", "d/b")
}

// TestUnknownName: a worker without the function fails the bundle.
func TestUnknownName(t *testing.T) {
	for _, p := range []interface{ Setup(context.Context) error }{&processFn[string]{Name: "other"}, &processFn[int]{Name: "paths"}} {
		require.ErrorContains(t, p.Setup(t.Context()), "this worker has no Register(")
	}
}

// TestBatches: their sizes are as documented, and each name is in one, once and in its place.
func TestBatches(t *testing.T) {
	for what, nameOf := range map[string]func(i int) string{
		"short": func(i int) string { return fmt.Sprint(i) },
		"long":  func(i int) string { return strings.Repeat("d/", 500+i%100) + fmt.Sprint(i) },
		"huge":  func(i int) string { return strings.Repeat("d/", i%5*maxBytes/4) + fmt.Sprint(i) },
	} {
		n := 200_000
		if what == "huge" {
			n = 100
		}
		seen, largest, longest := 0, 0, 0
		last := false
		b := batcher{emit: func(batch []byte, count int) {
			names := strings.Split(strings.TrimSuffix(string(batch), "\x00"), "\x00")
			require.Len(t, names, count)
			require.True(t, len(batch) <= maxBytes || count == 1, what)
			require.LessOrEqual(t, count, min(maxNames, max(minNames, (seen+count)/64+1)), what)
			require.True(t, last || what != "short" || count >= minNames)
			for _, name := range names {
				if name != nameOf(seen) {
					t.Fatal(what, seen)
				}
				seen++
			}
			largest, longest = max(largest, count), max(longest, len(batch))
		}}
		for i := range n {
			b.add(nameOf(i))
		}
		last = true
		b.flush()
		b.flush()
		require.Equal(t, n, seen)
		switch what {
		case "short":
			require.Equal(t, maxNames, largest)
		case "long":
			require.Greater(t, longest, maxBytes*9/10)
		}
	}
}

// TestRootIsAbsolute: a worker may have another working directory.
func TestRootIsAbsolute(t *testing.T) {
	b, err := newJob("some/../dir", fileproc.Options{})
	require.NoError(t, err)
	job, err := decodeJob(b)
	require.NoError(t, err)
	require.True(t, filepath.IsAbs(job.Root))
	require.True(t, strings.HasSuffix(job.Root, "some/../dir")) // some may be a link
}

type closedBucket struct{}

func (closedBucket) OpenBucketURL(context.Context, *url.URL) (*blob.Bucket, error) {
	bucket := memblob.OpenBucket(nil)
	return bucket, bucket.Close()
}

// TestUnreachableBucket: a worker that cannot reach the bucket fails the bundle, not each file.
func TestUnreachableBucket(t *testing.T) {
	blob.DefaultURLMux().RegisterBucket("testclosed", closedBucket{})
	job, err := newJob("testclosed://b", fileproc.Options{})
	require.NoError(t, err)
	p := processFn[string]{Name: paths.name, Job: job}
	require.ErrorContains(t, p.Setup(t.Context()), "this worker cannot list the bucket")
}

// TestFailureCoder: a Failure is opaque to runners. In Beam's own coder for structs, strings must be UTF-8.
func TestFailureCoder(t *testing.T) {
	var encoded bytes.Buffer
	require.NoError(t, beam.NewElementEncoder(reflect.TypeFor[Failure]()).Encode(Failure{"a", "b"}, &encoded))
	require.True(t, bytes.HasSuffix(encoded.Bytes(), encodeFailure(Failure{"a", "b"})))
	for _, f := range []Failure{{}, {"a", "b"}, {"\xff", "\xfe\x00"}, {strings.Repeat("p", 300), "e"}, {"", "e"}} {
		got, err := decodeFailure(encodeFailure(f))
		require.NoError(t, err)
		require.Equal(t, f, got)
	}
	for _, b := range []string{"", "\x05abc", "\xff"} {
		_, err := decodeFailure([]byte(b))
		require.Error(t, err)
	}
}

// TestKeys: a listing has each key once, in pages as it is asked for them, and then says which keys are no paths.
func TestKeys(t *testing.T) {
	bucket := memblob.OpenBucket(nil)
	defer bucket.Close()
	for key, content := range map[string]string{
		"d/a": "", "d/b/c": "", "d/": "full", "d//e": "", "d/../f": "", "d/./f": "", "d/n\x00l": "", "d/\n\\": "", ".ignore": "x",
	} {
		require.NoError(t, bucket.WriteAll(t.Context(), key, []byte(content), nil))
	}
	for _, n := range []int{-1, 1, 2, 256} {
		f, err := keys{t.Context(), bucket}.Open("d")
		require.NoError(t, err)
		dir := f.(fs.ReadDirFile)
		var names []string
		for {
			var entries []fs.DirEntry
			entries, err = dir.ReadDir(n)
			for _, e := range entries {
				names = append(names, fmt.Sprint(e.Name(), e.IsDir()))
			}
			if err != nil {
				break
			}
		}
		require.Equal(t, []string{"\n\\false", "afalse", "btrue"}, names)
		require.EqualError(t, err, `keys that are no paths, for example ["d/" "d/../" "d/./" "d//" "d/n\x00l"]`)
	}
	f, err := keys{t.Context(), bucket}.Open(".ignore")
	require.NoError(t, err)
	text, err := io.ReadAll(f)
	require.NoError(t, errors.Join(err, f.Close()))
	require.Equal(t, "x", string(text))
	_, err = keys{t.Context(), bucket}.Open("none")
	require.ErrorIs(t, err, fs.ErrNotExist)
}

// TestObjects: what a batch does not name is not asked for, and no directory is listed.
func TestObjects(t *testing.T) {
	o := newObjects(t.Context(), source{"r", nil}, []string{"a/b/c", "a/d", "e"}) // a bucket that is asked would panic
	for _, dir := range []string{"r", "r/a", "r/a/b"} {
		f, err := o.Open(dir)
		require.NoError(t, err)
		s, err := f.Stat()
		require.NoError(t, err)
		require.True(t, s.IsDir())
		s, err = o.Stat(dir)
		require.NoError(t, err)
		require.True(t, s.IsDir())
	}
	require.Panics(t, func() { o.Open("r/e") })
}
