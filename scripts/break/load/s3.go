package main

import (
	"bytes"
	"context"
	"io/fs"
	"net"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"gocloud.dev/blob"
	"gocloud.dev/blob/s3blob"
)

// openS3 returns a store in the memory of an S3 server, which runs in this process and listens on the loopback interface. Both
// sides use it through one bucket of gocloud.dev/blob, which is an fs.FS.
func openS3(ctx context.Context, vus int) (*store, error) {
	const bucketName = "load"
	memory := s3mem.New()
	if err := memory.CreateBucket(bucketName); err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	server := &http.Server{Handler: gofakes3.New(memory, gofakes3.WithoutVersioning()).Server()}
	go server.Serve(listener) // Close ends it
	client := s3.New(s3.Options{
		Region:       "us-east-1",
		BaseEndpoint: aws.String("http://" + listener.Addr().String()),
		UsePathStyle: true,
		Credentials:  credentials.NewStaticCredentialsProvider("load", "load", ""),
		// A VU may need one connection for each request that is not read to its end.
		HTTPClient: &http.Client{Transport: &http.Transport{MaxIdleConns: 4 * vus, MaxIdleConnsPerHost: 4 * vus}},
	})
	bucket, err := s3blob.OpenBucket(ctx, client, bucketName, nil)
	if err != nil {
		server.Close()
		return nil, err
	}
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
		// A root of "." is not opened: any other would be listed.
		sides: [2]side{fileprocSide(bucket, func(dir, name string) (string, string) { return ".", dir + "/" + name }), bucketSide(bucket)},
	}, nil
}

// bucketSide reads with fs.ReadFile and lists with fs.WalkDir.
func bucketSide(bucket *blob.Bucket) side {
	return side{
		name: "io/fs",
		read: func(_ context.Context, dir, name string, check func([]byte) error) error {
			data, err := fs.ReadFile(bucket, dir+"/"+name)
			if err != nil {
				return err
			}
			return check(data)
		},
		list: func(_ context.Context, dir string, names []string) ([]string, error) {
			err := fs.WalkDir(bucket, dir, func(_ string, d fs.DirEntry, err error) error {
				if err == nil && !d.IsDir() {
					names = append(names, d.Name())
				}
				return err
			})
			return names, err
		},
	}
}
