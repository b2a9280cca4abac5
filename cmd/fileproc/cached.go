package main

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/incremental"
)

// eachCached runs j over one directory, with --cache.
func (a *app) eachCached(j *job) error {
	root := workingDir
	switch {
	case a.sel.list.file != "":
		return errors.New("--cache and --files-from cannot be used together")
	case len(j.args) == 1:
		root = j.args[0]
	case len(j.args) > 1:
		return errors.New("--cache is for one directory: use a cache file for each")
	}
	dir, prefix, err := directory(root)
	switch {
	case err != nil:
		return err
	case dir == "":
		return errors.New("--cache is for a directory, not for " + root)
	}
	opts, done := a.runOptions(dir, j.opts)
	defer done(nil)
	opts.Ordered = a.sel.sort
	inc := incremental.Options[[]byte]{File: a.sel.cache, Version: version() + " " + j.version, Codec: incremental.Raw[[]byte]()}
	// What is kept is the path, a NUL byte, and what read has returned: a result does not say of which file it is.
	results := incremental.Stream(a.ctx, dir, inc, opts, func(f *fileproc.File) ([]byte, error) {
		it := item{app: a, f: f, prefix: prefix, data: f.Data(), more: f.Truncated(), worker: f.Worker()}
		value, err := j.read(&it)
		if err != nil {
			return nil, err
		}
		return append(append([]byte(f.Rel()), 0), value...), nil
	})
	printed := chunk{out: a.out}
	for b, err := range results {
		if err != nil {
			return asCacheError(err)
		}
		rel, value, _ := bytes.Cut(b, []byte{0})
		path := prefix + filepath.FromSlash(string(rel))
		if err := j.print(path, value, &printed); err != nil && a.ctx.Err() == nil {
			a.fail(&fs.PathError{Op: opProcess, Path: path, Err: err})
		}
		printed.fileDone()
	}
	return context.Cause(a.ctx)
}

// asCacheError gives an error of the cache file the name of the flag.
func asCacheError(err error) error {
	if errors.Is(err, incremental.ErrNotSaved) {
		return errors.New("--cache: " + strings.ReplaceAll(strings.TrimPrefix(err.Error(), incremental.ErrNotSaved.Error()+": "), "incremental: ", ""))
	}
	return err
}
