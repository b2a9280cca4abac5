// Command batch is a batch program for Spark, and for any engine that starts
// programs: it answers the names of tickets on standard input with lines of JSON
// (see package pipe). ROOT is a directory or the URL of a bucket.
//
//	batch -list ROOT   # prints the names
//	batch ROOT <names  # answers them
//
// A program without buckets needs no more than pipe.Main and parse.
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/pipe"
	"gocloud.dev/blob"
	_ "gocloud.dev/blob/fileblob" // file:///dir
	_ "gocloud.dev/blob/s3blob"   // s3://bucket?region=…
)

var options = fileproc.Options{Suffixes: []string{".md"}, SkipHidden: true, MaxFileSize: 1 << 20}

// A ticket is the result for one file.
type ticket struct {
	ID     string `json:"id"`
	Status string `json:"status"`
	Words  int    `json:"words"`
	SHA256 string `json:"sha256"`
}

var errNoTicket = errors.New("not a ticket: no front matter with an id")

// parse is called for each file, on several goroutines at once.
func parse(f *fileproc.File) (ticket, error) {
	front, body, found := bytes.Cut(bytes.TrimPrefix(f.Data(), []byte("---\n")), []byte("\n---\n"))
	sum := sha256.Sum256(f.Data())
	t := ticket{Words: len(bytes.Fields(body)), SHA256: hex.EncodeToString(sum[:])}
	for line := range bytes.Lines(front) {
		key, value, _ := strings.Cut(string(line), ":")
		switch key {
		case "id":
			t.ID = strings.TrimSpace(value)
		case "status":
			t.Status = strings.TrimSpace(value)
		}
	}
	if !found || t.ID == "" {
		return t, errNoTicket
	}
	return t, nil
}

func main() {
	list := flag.Bool("list", false, "print the names of the tickets")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: batch [-list] ROOT")
		os.Exit(2)
	}
	if err := run(context.Background(), flag.Arg(0), *list, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, root string, list bool, in io.Reader, out io.Writer) error {
	opts := options
	if strings.Contains(root, "://") {
		bucket, err := blob.OpenBucket(ctx, root)
		if err != nil {
			return err
		}
		defer bucket.Close()
		root, opts.FS = ".", pipe.Objects(bucket, func(key string) (pipe.Object, error) { return bucket.NewReader(ctx, key, nil) })
	}
	if list {
		return pipe.List(ctx, root, out, opts)
	}
	return pipe.Run(ctx, root, in, out, opts, parse)
}
