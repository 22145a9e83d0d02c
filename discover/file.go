package discover

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/wardrop-lb/wardrop/config"
)

// maxPage bounds what a source reads at once, in bytes.
const maxPage = 16 << 20

// file is a list of engines in a file. The content is compared, not the time: it
// works where files are links that are swapped, as in a mounted ConfigMap.
type file struct{ config.Source }

// Run implements Source.
func (f *file) Run(ctx context.Context, report func(Found)) error {
	var last []byte
	var found Found
	return every(ctx, time.Duration(f.Interval), func() {
		data, err := readFile(f.File)
		switch {
		case err != nil:
			report(Found{Err: err})
			return
		case last == nil || !bytes.Equal(data, last):
			last = data
			found.Engines, found.Err = f.ParseEngines(f.File, data)
		}
		report(found)
	})
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, maxPage+1))
	if err == nil && len(data) > maxPage {
		err = fmt.Errorf("%s: longer than %d bytes", path, maxPage)
	}
	if data == nil {
		data = []byte{}
	}
	return data, err
}
