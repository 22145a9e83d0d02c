package proxy

import (
	"encoding/hex"
	"fmt"
)

// A unix socket's path travels through http.Transport as a host name, so that
// connections are pooled by socket.
func encodeSocket(path string) string { return "unix-" + hex.EncodeToString([]byte(path)) }

func decodeSocket(host string) (string, error) {
	if len(host) < 5 {
		return "", fmt.Errorf("%q is no socket", host)
	}
	path, err := hex.DecodeString(host[5:])
	return string(path), err
}
