// Package blobtest reads an object store through gocloud.dev/blob, whose Bucket is an fs.FS. It is a separate module, so
// importers of fileproc do not depend on gocloud.dev.
package blobtest

import (
	"fmt"
	"testing"

	"github.com/fileproc/fileproc"
	"github.com/stretchr/testify/require"
	"gocloud.dev/blob/memblob"
)

func TestBucket(t *testing.T) {
	bucket := memblob.OpenBucket(nil)
	defer bucket.Close()
	want := map[string]string{}
	for i := range 700 { // more than one page of a listing
		name := fmt.Sprintf("d%d/s%d/f%03d.md", i%7, i%3, i)
		want[name] = fmt.Sprint("content of ", name)
	}
	want["top.txt"], want["d0/.ignore"], want["empty"] = "top", "s1/\n", ""
	for name, content := range want {
		require.NoError(t, bucket.WriteAll(t.Context(), name, []byte(content), nil))
	}
	read := func(opts fileproc.Options) (map[string]string, fileproc.Report) {
		var report fileproc.Report
		opts.FS, opts.Report = bucket, &report
		got := map[string]string{}
		for f, err := range fileproc.Stream(t.Context(), ".", opts, func(f *fileproc.File) ([2]string, error) {
			s, err := f.Stat()
			if err == nil && s.Size != int64(len(f.Data())) {
				err = fmt.Errorf("%d bytes of %d", len(f.Data()), s.Size)
			}
			return [2]string{f.Rel(), string(f.Data())}, err
		}) {
			require.NoError(t, err)
			got[f[0]] = f[1]
		}
		return got, report
	}
	for _, opts := range []fileproc.Options{{}, {Workers: 8}, {Ordered: true, Workers: 3}, {Stat: true}} {
		got, report := read(opts)
		require.Equal(t, want, got)
		require.EqualValues(t, len(want), report.Processed)
		require.EqualValues(t, 1+7+21, report.Directories)
	}
	got, report := read(fileproc.Options{IgnoreFiles: []string{".ignore"}, Include: []string{"d[01]/**"}, Suffixes: []string{".md"}})
	for name := range want {
		_, ok := got[name]
		require.Equal(t, (name[:2] == "d0" || name[:2] == "d1") && name[:5] != "d0/s1" && name != "d0/.ignore", ok, name)
	}
	require.EqualValues(t, 1+2+5, report.Directories)
}
