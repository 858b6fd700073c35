// The references' answers, as text_driver gives its own. Run in the folder that holds node_modules.
//   node reference.mjs encode FOLDER        each line of stdin is a text in hexadecimal
//   node reference.mjs render FOLDER CONTEXT...    for each template, by name: [text or null, why it was refused] of each
//   node reference.mjs collection FILE FOLDER      writes the templates of @huggingface/ollama-utils into a folder
import fs from 'node:fs';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const require = createRequire(process.cwd() + '/');
const load = (name) => import(pathToFileURL(require.resolve(name)).href).then((m) => m.default ?? m);
const [, , mode, path, ...contexts] = process.argv;
const read = (file) => fs.readFileSync(file, 'utf8');
if (mode === 'encode') {
  const { Tokenizer } = await load('@huggingface/tokenizers');
  const tokenizer = new Tokenizer(JSON.parse(read(path + '/tokenizer.json')), JSON.parse(read(path + '/tokenizer_config.json')));
  for (const line of read(0).split('\n').filter((l) => l)) {
    const { ids } = tokenizer.encode(Buffer.from(line, 'hex').toString('utf8'), { add_special_tokens: false });
    const options = { skip_special_tokens: false, clean_up_tokenization_spaces: false };
    console.log(JSON.stringify({ ids, text: ids.length ? tokenizer.decode(ids, options) : '' }));
  }
} else if (mode === 'render') {
  const { Template } = await load('@huggingface/jinja');
  const values = contexts.map(read);
  for (const name of fs.readdirSync(path).sort()) {
    const source = read(path + '/' + name);
    const answers = values.map((value) => {
      try {
        return [new Template(source).render(JSON.parse(value)), ''];
      } catch (error) {
        return [null, error.message];
      }
    });
    console.log(JSON.stringify(answers));
  }
} else {
  // A list of objects, in TypeScript.
  const text = read(path);
  const entries = Function('return ' + text.slice(text.indexOf('= [') + 1))();
  for (const { model, gguf } of entries)
    fs.writeFileSync(contexts[0] + '/' + model.replace(/[/:]/g, '_') + '.jinja', gguf ?? '');
}
