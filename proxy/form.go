package proxy

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"mime/multipart"
)

// sniffForm finds the model in a multipart form, as audio and image requests have
// it. Files are skipped. A form that names two models is refused: an engine could
// take the other one.
func (f *Fields) sniffForm(body []byte, contentType string) error {
	media, params, err := mime.ParseMediaType(contentType)
	if err != nil || media != "multipart/form-data" || params["boundary"] == "" {
		return errors.New("the body is not multipart/form-data")
	}
	r := multipart.NewReader(bytes.NewReader(body), params["boundary"])
	for {
		part, err := r.NextRawPart()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return errors.New("the form is not whole")
		}
		if part.FormName() != "model" {
			continue
		}
		value, err := io.ReadAll(io.LimitReader(part, maxName))
		if err != nil || f.Model != "" {
			return errors.New("the form must name one model")
		}
		f.Model = string(value)
	}
	if f.Model == "" {
		return errors.New("no model: add the field \"model\" to the form")
	}
	f.modelAt = formValue(body, f.Model)
	return nil
}

// formValue finds where the model's value stands, for an alias to be replaced;
// it is zero when that is not certain.
func formValue(body []byte, model string) [2]int {
	_, after, ok := bytes.Cut(body, []byte(`name="model"`))
	if !ok {
		return [2]int{}
	}
	header, _, ok := bytes.Cut(after, []byte("\r\n\r\n"))
	start := len(body) - len(after) + len(header) + 4
	if !ok || !bytes.HasPrefix(body[start:], []byte(model+"\r\n--")) {
		return [2]int{}
	}
	return [2]int{start, start + len(model)}
}
