package main

import (
	"errors"
	"io"
	"os"
)

// writeTo has f write to a file, which replaces what was there, or to out where path is empty. The error
// is f's, or the file's: what could not be written to its end is not said to be.
func writeTo(path string, out io.Writer, f func(io.Writer) error) error {
	if path == "" {
		return f(out)
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(f(file), file.Close())
}
