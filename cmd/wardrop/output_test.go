package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWriteTo(t *testing.T) {
	hello := func(w io.Writer) error { _, err := io.WriteString(w, "hello"); return err }
	var out bytes.Buffer
	require.NoError(t, writeTo("", &out, hello))
	require.Equal(t, "hello", out.String())
	path := filepath.Join(t.TempDir(), "file")
	writeFile(t, path, "what was there before")
	require.NoError(t, writeTo(path, nil, hello))
	require.Equal(t, "hello", readAll(t, path))
	broken := errors.New("broken")
	require.ErrorIs(t, writeTo(path, nil, func(io.Writer) error { return broken }), broken)
	require.ErrorIs(t, writeTo(path, nil, func(w io.Writer) error { return w.(io.Closer).Close() }), os.ErrClosed, "the file's own error")
	require.Error(t, writeTo(filepath.Join(path, "under"), nil, hello))
}
