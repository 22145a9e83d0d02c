// Asks an OpenAI API with the official client for Node and prints what came, as
// JSON. Usage: node client.mjs OPENAI_MODULE BASE_URL MODEL
const [module, baseURL, model] = process.argv.slice(2);
const { default: OpenAI } = await import(module);
const client = new OpenAI({ baseURL, apiKey: "none", maxRetries: 0, timeout: 60_000 });
const messages = [{ role: "user", content: "Count from one to a hundred." }];

const result = { models: [] };
for await (const m of client.models.list()) result.models.push(m.id);
result.chat = (await client.chat.completions.create({ model, messages, max_tokens: 8 })).choices[0].message.content;

result.stream = "";
const stream = await client.chat.completions.create({ model, messages, max_tokens: 24, stream: true, ignore_eos: true });
for await (const chunk of stream) result.stream += chunk.choices[0]?.delta?.content ?? "";

const long = await client.chat.completions.create({ model, messages, max_tokens: 1500, stream: true, ignore_eos: true });
let count = 0;
for await (const _ of long) if (++count === 3) break; // leaving the loop cancels
result.cancelled_after = count;

try {
  await client.chat.completions.create({ model: "other", messages });
} catch (e) {
  result.refused = e.constructor.name;
}
console.log(JSON.stringify(result));
