package fileprocbeam

import (
	"bytes"
	"cmp"
	"context"
	"embed"
	"encoding/gob"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"strings"

	"github.com/fileproc/fileproc"
	"gocloud.dev/blob"
)

// A job is what the workers know of a call of Process. It travels as gob in a []byte,
// since DoFns travel as JSON, which alters strings that are not UTF-8.
type job struct {
	Root string // a directory of the operating system, or a URL
	Opts fileproc.Options
}

// newJob checks root and opts and encodes the job.
func newJob(root string, opts fileproc.Options) ([]byte, error) {
	root, err := resolve(root)
	if err != nil {
		return nil, fmt.Errorf("fileprocbeam: %w", err)
	}
	if err := errors.Join(refuse(opts), validate(root, opts)); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := gob.NewEncoder(&b).Encode(job{root, opts}); err != nil {
		return nil, fmt.Errorf("fileprocbeam: options cannot travel: %w", err)
	}
	return b.Bytes(), nil
}

func decodeJob(b []byte) (j job, err error) {
	err = gob.NewDecoder(bytes.NewReader(b)).Decode(&j)
	return j, err
}

// refused says, by the name of an option, why a pipeline cannot have it. Of other options
// that cannot travel, refuse says only that they cannot.
var refused = map[string]string{
	"AllTypes":        "a pipeline is for regular files",
	"Roots":           "a pipeline has one root",
	"Files":           "a pipeline lists root",
	"FS":              "it cannot travel to the workers: give the URL of a bucket as root",
	"Select":          "a function cannot travel to the workers: fn may return fileproc.ErrSkip",
	"OnError":         "a function cannot travel to the workers: failures are a PCollection",
	"Report":          "a pointer cannot travel to the workers: the pipeline has metrics",
	"Durable":         "fn's result goes on before its file is on the disk",
	"Ordered":         "a PCollection has no order",
	"Symlinks":        "workers get names, which are not followed if they are links",
	"SymlinksOutside": "workers get names, which are not followed if they are links",
}

// refuse reports the options that are set although they cannot travel or have no
// meaning in a pipeline.
func refuse(opts fileproc.Options) error {
	var errs []error
	v := reflect.ValueOf(opts)
	for i, f := range reflect.VisibleFields(v.Type()) {
		if !f.IsExported() || v.Field(i).IsZero() {
			continue
		}
		why := refused[f.Name]
		switch f.Type.Kind() {
		case reflect.Func, reflect.Interface, reflect.Pointer, reflect.Chan:
			if why == "" {
				why = "it cannot travel to the workers"
			}
		}
		if why != "" {
			errs = append(errs, fmt.Errorf("fileprocbeam: Options.%s is refused: %s", f.Name, why))
		}
	}
	return errors.Join(errs...)
}

// validate returns an error if package fileproc refuses opts. It starts a run that is
// already cancelled: such a run checks its options. The run may also open root, so validate
// drops errors of paths: root need not exist on this machine.
func validate(root string, opts fileproc.Options) error {
	var none fileproc.Options
	opts.FS, opts.OnError, opts.Report, opts.OnProgress, opts.Files = none.FS, none.OnError, none.Report, none.OnProgress, none.Files
	if isURL(root) {
		_, dir, err := splitURL(root)
		if err != nil {
			return fmt.Errorf("fileprocbeam: %w", err)
		}
		root, opts.FS = dir, embed.FS{}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	err := fileproc.ForEach(ctx, root, opts, func(*fileproc.File) error { return nil })
	var about *fs.PathError
	if errors.Is(err, context.Canceled) || errors.As(err, &about) {
		return nil
	}
	return err
}

var urlStart = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*://`)

func isURL(root string) bool { return urlStart.MatchString(root) }

// resolve returns root as the workers need it: an absolute path, or the URL of a
// bucket for which this program has a driver.
func resolve(root string) (string, error) {
	if !isURL(root) {
		if root == "" || filepath.IsAbs(root) || strings.HasPrefix(root, "/") {
			return root, nil
		}
		wd, err := os.Getwd()
		return wd + string(filepath.Separator) + root, err // a ".." behind a link is kept
	}
	u, err := url.Parse(root)
	if err != nil {
		return "", err
	}
	if strings.Contains(root, "#") { // what follows would be lost
		return "", fmt.Errorf("root %q: a # in a URL is written %%23", u.Redacted())
	}
	if u.Scheme == "file" {
		if u.Host != "" && u.Host != "localhost" || u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Path == "" {
			return "", fmt.Errorf("root %q: want a file URL with nothing but an absolute path", root)
		}
		if runtime.GOOS == "windows" {
			return filepath.FromSlash(strings.TrimPrefix(u.Path, "/")), nil
		}
		return u.Path, nil
	}
	if !blob.DefaultURLMux().ValidBucketScheme(u.Scheme) {
		return "", fmt.Errorf("root %q: this program imports no driver for %s, such as a package below gocloud.dev/blob", u.Redacted(), u.Scheme)
	}
	_, _, err = splitURL(root)
	return root, err
}

// splitURL divides the URL of a directory in a bucket into the bucket's URL and the
// directory. Drivers for buckets ignore the path.
func splitURL(root string) (bucket, dir string, err error) {
	u, err := url.Parse(root)
	if err != nil {
		return "", "", err
	}
	dir = strings.TrimSuffix(strings.TrimPrefix(u.Path, "/"), "/")
	if dir == "" {
		dir = "."
	}
	if !fs.ValidPath(dir) {
		return "", "", fmt.Errorf("root %q: %q is not a valid path in a bucket", u.Redacted(), dir)
	}
	u.Path, u.RawPath = "", ""
	return u.String(), dir, nil
}

// A source is where a worker reads a job's files.
type source struct {
	dir    string       // root
	bucket *blob.Bucket // nil for a directory of the operating system
}

func openSource(ctx context.Context, root string) (source, error) {
	if !isURL(root) {
		return source{dir: root}, nil
	}
	name, dir, err := splitURL(root)
	if err != nil {
		return source{}, err
	}
	bucket, err := blob.OpenBucket(ctx, name)
	if err != nil {
		return source{}, err
	}
	ok, err := bucket.IsAccessible(ctx)
	if err != nil || !ok { // else each file would be a failure
		bucket.Close()
		return source{}, fmt.Errorf("fileprocbeam: this worker cannot list the bucket: %w", cmp.Or(err, fs.ErrNotExist))
	}
	return source{dir, bucket}, nil
}

func (s *source) close() error {
	if s.bucket == nil {
		return nil
	}
	return s.bucket.Close()
}
