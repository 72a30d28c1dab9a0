// Compiles a list of JSON Schemas with Ajv, and prints the errors of draft-07 and 2020-12 for each schema.
import { createRequire } from 'node:module'
import { readFileSync } from 'node:fs'

const require = createRequire(process.argv[2] + '/')
const addFormats = require('ajv-formats').default
const made = (Ajv) => addFormats(new Ajv({ strict: false, logger: false }))
const dialects = {
  'draft-07': made(require('ajv').default),
  '2020-12': made(require('ajv/dist/2020').default),
}
const compile = (ajv, schema) => {
  try {
    ajv.compile(schema)
    return null
  } catch (error) {
    return error.message
  } finally {
    ajv.removeSchema(schema)
  }
}
const schemas = JSON.parse(readFileSync(0, 'utf8'))
const answer = (schema) => Object.fromEntries(Object.entries(dialects).map(([name, ajv]) => [name, compile(ajv, schema)]))
process.stdout.write(JSON.stringify(schemas.map(answer)))
