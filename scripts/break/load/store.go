package main

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"gocloud.dev/blob"
	"gocloud.dev/blob/s3blob"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/scripts/internal/fail"
)

// A store keeps files for one run of the load. Paths have slashes and are relative to the store.
type store struct {
	kind   string // for the record, such as "files" or "S3 server"
	mkdir  func(dir string) error
	create func(path string, data []byte) error
	remove func(path string) error
	close  func() error
	// The first of the sides is fileproc's, the second what it is compared with. They read and list the same store in two
	// ways, and create and delete in the same way.
	sides [2]side
}

type side struct {
	name string
	// read calls check with the content of one file. It may be valid only until check returns.
	read func(ctx context.Context, dir, name string, check func(data []byte) error) error
	// list returns the names of the files in dir, in any order.
	list func(ctx context.Context, dir string) ([]string, error)
}

const ours = "fileproc"

var stores = map[string]func(ctx context.Context, dir string) *store{"os": openFiles, "s3": openS3}

// openFiles returns a store in a new directory below parent, which close removes.
func openFiles(_ context.Context, parent string) *store {
	root := fail.Must(os.MkdirTemp(parent, "fileproc-load-"))
	at := func(path string) string { return filepath.Join(root, filepath.FromSlash(path)) }
	return &store{
		kind:   "files",
		mkdir:  func(dir string) error { return os.MkdirAll(at(dir), 0o755) },
		create: func(path string, data []byte) error { return os.WriteFile(at(path), data, 0o644) },
		remove: func(path string) error { return os.Remove(at(path)) },
		close:  func() error { return os.RemoveAll(root) },
		sides: [2]side{
			fileprocSide(nil, at, func(dir, name string) (string, string) { return at(dir), name }),
			otherSide("os", at, os.ReadFile, filepath.WalkDir),
		},
	}
}

// openS3 returns a store in the memory of an S3 server, which runs in this process and listens on the loopback interface. Both
// sides use it through one bucket of gocloud.dev/blob, which is an fs.FS.
func openS3(ctx context.Context, _ string) *store {
	const bucketName = "load"
	memory := s3mem.New()
	fail.On(memory.CreateBucket(bucketName))
	server := httptest.NewServer(gofakes3.New(memory, gofakes3.WithoutVersioning()).Server())
	client := s3.New(s3.Options{
		Region:       "us-east-1",
		BaseEndpoint: &server.URL,
		UsePathStyle: true,
		Credentials:  credentials.NewStaticCredentialsProvider("load", "load", ""),
		// A VU may need one connection for each request that is not read to its end, and the default keeps two.
		HTTPClient: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 10_000}},
	})
	bucket := fail.Must(s3blob.OpenBucket(ctx, client, bucketName, nil))
	at := func(path string) string { return path }
	return &store{
		kind:  "S3 server",
		mkdir: func(string) error { return nil },
		create: func(path string, data []byte) error {
			return bucket.Upload(ctx, path, bytes.NewReader(data), &blob.WriterOptions{ContentType: "application/octet-stream"})
		},
		remove: func(path string) error { return bucket.Delete(ctx, path) },
		close: func() error {
			err := bucket.Close()
			server.Close()
			return err
		},
		sides: [2]side{
			// A root of "." is not opened: any other would be listed.
			fileprocSide(bucket, at, func(dir, name string) (string, string) { return ".", dir + "/" + name }),
			otherSide("io/fs", at, func(name string) ([]byte, error) { return fs.ReadFile(bucket, name) },
				func(dir string, fn fs.WalkDirFunc) error { return fs.WalkDir(bucket, dir, fn) }),
		},
	}
}

// fileprocSide reads a file by a Process of this one name, and lists by a Walk. A nil fsys is the operating system's files. At
// returns what Walk calls a directory, and one the root for a file of it and its name in Options.Files.
func fileprocSide(fsys fs.FS, at func(dir string) string, one func(dir, name string) (root, file string)) side {
	return side{
		name: ours,
		read: func(ctx context.Context, dir, name string, check func([]byte) error) error {
			root, file := one(dir, name)
			opts := fileproc.Options{FS: fsys, Files: slices.Values([]string{file})}
			got, err := fileproc.Process(ctx, root, opts, func(f *fileproc.File) (string, error) {
				return f.Name(), check(f.Data())
			})
			if err == nil && (len(got) != 1 || got[0] != name) {
				err = fmt.Errorf("reading %s/%s gave %q", dir, name, got)
			}
			return err
		},
		list: func(ctx context.Context, dir string) (names []string, err error) {
			for e, err := range fileproc.Walk(ctx, at(dir), fileproc.Options{FS: fsys}) {
				if err != nil {
					return names, err
				}
				names = append(names, e.Name())
			}
			return names, nil
		},
	}
}

// otherSide reads and lists with these functions, which have the paths that at returns.
func otherSide(name string, at func(path string) string, readFile func(string) ([]byte, error), walkDir func(string, fs.WalkDirFunc) error) side {
	return side{
		name: name,
		read: func(_ context.Context, dir, name string, check func([]byte) error) error {
			data, err := readFile(at(dir + "/" + name))
			if err != nil {
				return err
			}
			return check(data)
		},
		list: func(_ context.Context, dir string) (names []string, err error) {
			err = walkDir(at(dir), func(_ string, d fs.DirEntry, err error) error {
				if err == nil && !d.IsDir() {
					names = append(names, d.Name())
				}
				return err
			})
			return names, err
		},
	}
}
